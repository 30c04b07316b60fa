"""The demonstration: a page of HTML on which a visitor moves observations and shipped models answer in JavaScript."""
