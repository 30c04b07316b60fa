"""Fields of the earth in the user's units: readers, the frame of coordinates and units, models of a field, maps.

Everything that knows latitude, longitude, time and units lives here; the neural processes inside know none of it.
"""
