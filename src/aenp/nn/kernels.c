/* What kriging and Vecchia's likelihood spend their time with, for nn/compiled.py. Tensors are contiguous float64.

Inner loops run over independent numbers, so that compilers make vectors of them, for each generation of processors. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define EXPORT __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EXPORT
#endif
#define INLINE static inline __attribute__((always_inline))

enum { LANES = 4, NEIGHBOURS = 8, FAMILY = NEIGHBOURS + 1, PAIRS = FAMILY * (FAMILY + 1) / 2, BLOCK = 128 };
#define EACH_PAIR for (int j = 0, pair = 0; j < FAMILY; j++) for (int k = j; k < FAMILY; k++, pair++)

typedef double lanes __attribute__((vector_size(LANES * sizeof(double))));

static const double LN2 = 0.693147180559945309417;

/* The number of what follows, which changes with any function's arguments or their meaning. */
int interface(void) { return 1; }

/* 2^x for −60 ≤ x ≤ 0 and NaN: 2^n Σ_k z^k / k! where x = n + z / ln 2 and |z| ≤ ½ ln 2. */
INLINE double power_of_two(double x) {
    static const double inverse_factorials[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                                1.0 / 40320,     1.0 / 5040,     1.0 / 720,     1.0 / 120,
                                                1.0 / 24,        1.0 / 6,        1.0 / 2,       1.0,
                                                1.0};
    const double round = 0x1.8p52; /* the last bits of x + round are those of n */
    double shifted = x + round, z = LN2 * (x - (shifted - round)), sum = 0, scale;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    memcpy(&scale, &bits, sizeof bits);
    for (int k = 0; k < 13; k++) sum = sum * z + inverse_factorials[k];
    return sum * scale;
}

/* Adds the correlations at distances r, multiplied by a variance, as nn/matern.py computes them. */
INLINE void add_matern(double nu, double lengthscale, double variance, const double *restrict r, double *restrict cov,
                       int64_t count) {
    double factor = -(isinf(nu) ? 0.5 / lengthscale : sqrt(2 * nu)) / LN2 / lengthscale;
#define EACH(distance, polynomial)                          \
    for (int64_t i = 0; i < count; i++) {                   \
        double s = factor * (distance);                     \
        s = s < -60 ? -60 : s;                              \
        cov[i] += variance * (polynomial) * power_of_two(s); \
    }
    if (isinf(nu)) EACH(r[i] * r[i], 1)
    else if (nu == 0.5) EACH(r[i], 1)
    else if (nu == 1.5) EACH(r[i], 1 - LN2 * s)
    else EACH(r[i], 1 - LN2 * s + LN2 * LN2 / 3 * s * s)
#undef EACH
}

/* Adds Σ_s variance_s · correlation_s(|x1 − x2|) for each of some kernels; of a triangle what is not above the diagonal.

x1: kernels × n × dim; x2: kernels × dim × m; variance, lengthscale: kernels × shapes; cov: kernels × n × m. */
EXPORT void add_covariances(int64_t kernels, int64_t n, int64_t m, int64_t dim, int64_t shapes, int64_t triangle,
                            const double *smoothness, const double *variance, const double *lengthscale,
                            const double *x1, const double *x2, double *cov) {
    double r[BLOCK];
    for (int64_t row = 0; row < kernels * n; row++) {
        int64_t kernel = row / n, end = triangle ? row % n + 1 : m;
        for (int64_t start = 0; start < end; start += BLOCK) {
            int64_t count = end - start < BLOCK ? end - start : BLOCK;
            memset(r, 0, sizeof r);
            for (int64_t d = 0; d < dim; d++) {
                double own = x1[row * dim + d];
                const double *other = x2 + (kernel * dim + d) * m + start;
                for (int64_t i = 0; i < count; i++) r[i] += (own - other[i]) * (own - other[i]);
            }
            for (int64_t i = 0; i < count; i++) r[i] = sqrt(r[i]);
            for (int64_t s = kernel * shapes; s < (kernel + 1) * shapes; s++)
                add_matern(smoothness[s % shapes], lengthscale[s], variance[s], r, cov + row * m + start, count);
        }
    }
}

/* The distance of each point to the nearest other that counts, infinite where there is none. x: batch × n × dim. */
EXPORT void nearest_distances(int64_t batch, int64_t n, int64_t dim, const double *x, const uint8_t *mask,
                              double *nearest) {
    for (int64_t row = 0; row < batch * n; row++) {
        double least = INFINITY;
        for (int64_t other = row / n * n; other < (row / n + 1) * n; other++) {
            double square = other == row || !mask[other] ? INFINITY : 0;
            for (int64_t d = 0; d < dim; d++)
                square += (x[row * dim + d] - x[other * dim + d]) * (x[row * dim + d] - x[other * dim + d]);
            least = square < least ? square : least;
        }
        nearest[row] = sqrt(least);
    }
}

/* The numbers of the predecessors nearest to a point, the nearest first; returns how many there are. x: dim × n. */
INLINE int nearest_predecessors(int64_t own, int64_t n, int64_t dim, const double *restrict x, const double *key,
                                const double *restrict lift, int64_t *near) {
    double distance[own + 1], least[NEIGHBOURS];
    int found = 0;
    memset(distance, 0, sizeof distance);
    for (int64_t d = 0; d < dim; d++)
        for (int64_t other = 0; other < own; other++)
            distance[other] += (x[d * n + own] - x[d * n + other]) * (x[d * n + own] - x[d * n + other]);
    for (int64_t other = 0; other < own; other++) distance[other] = sqrt(distance[other]) + lift[other];
    for (int64_t other = 0; other < own && key[other] < key[own]; other++) {
        if (found == NEIGHBOURS && !(distance[other] < least[NEIGHBOURS - 1])) continue;
        int place = found < NEIGHBOURS ? found++ : NEIGHBOURS - 1;
        for (; place > 0 && distance[other] < least[place - 1]; place--)
            least[place] = least[place - 1], near[place] = near[place - 1];
        least[place] = distance[other], near[place] = other;
    }
    return found;
}

/* Vecchia's likelihoods as nn/vecchia.py defines them, of points that are in the order of their key.

points: batch × width × n, of a value, dim coordinates, one, and covariates; references: count × (smoothness,
lengthscale, nugget, number of its stretch, trend); stretches: each dim × dim; results: batch × count. */
EXPORT void profile(int64_t batch, int64_t n, int64_t dim, int64_t width, int64_t most_rows, int64_t count,
                    const double *references, const double *stretches, const double *points, const double *key,
                    const double *lift, const int64_t *counts, const double *extent, double *logliks, double *scales) {
    static const double none[] = {-1, -1, -1, -1, -1};
    for (int64_t b = 0; b < batch; b++, points += n * width, key += n, lift += n, logliks += count, scales += count) {
        int64_t rows = counts[b] < most_rows ? counts[b] : most_rows;
        memset(scales, 0, count * sizeof *scales), memset(logliks, 0, count * sizeof *logliks);
        for (int64_t start = 0; start < rows; start += LANES) {
            /* What is not there is zero, and so covaries with nothing. */
            lanes known[width][FAMILY], linear[PAIRS] = {0}, constant[PAIRS] = {0};
            lanes distance[PAIRS], cov[PAIRS], column[FAMILY][FAMILY], ratio[FAMILY][FAMILY], error[FAMILY];
            lanes variance = {0}, inverse = {0};
            memset(known, 0, sizeof known);
            for (int i = 0; i < LANES && start + i < rows; i++) {
                int64_t near[FAMILY], own = (int64_t)((start + i + 0.5) * counts[b] / rows);
                int found = nearest_predecessors(own, n, dim, points + n, key, lift, near);
                for (int64_t w = 0; w < width; w++) {
                    for (int j = 0; j < found; j++) known[w][j][i] = points[w * n + near[j]];
                    known[w][NEIGHBOURS][i] = points[w * n + own];
                }
            }
            EACH_PAIR {
                for (int64_t w = 1; w <= dim; w++) linear[pair] += known[w][j] * known[w][k] / extent[b];
                for (int64_t w = dim + 1; w < width; w++) constant[pair] += known[w][j] * known[w][k];
            }
            for (int64_t number = 0; number < count; number++) {
                const double *now = references + 5 * number, *before = number ? now - 5 : none;
                if (now[3] != before[3]) {
                    const double *stretch = stretches + (int64_t)now[3] * dim * dim;
                    memset(distance, 0, sizeof distance);
                    for (int64_t d = 0; d < dim; d++) {
                        lanes moved[FAMILY] = {0};
                        for (int64_t e = 0; e < dim; e++)
                            for (int j = 0; j < FAMILY; j++) moved[j] += stretch[d * dim + e] * known[e + 1][j];
                        EACH_PAIR distance[pair] += (moved[j] - moved[k]) * (moved[j] - moved[k]);
                    }
                    double *each = (double *)distance;
                    for (int i = 0; i < PAIRS * LANES; i++) each[i] = sqrt(each[i]);
                }
                if (now[0] != before[0] || now[1] != before[1] || now[3] != before[3] || now[4] != before[4]) {
                    memset(cov, 0, sizeof cov);
                    add_matern(now[0], now[1], 1, (double *)distance, (double *)cov, PAIRS * LANES);
                    EACH_PAIR {
                        cov[pair] *= known[dim + 1][j] * known[dim + 1][k];
                        cov[pair] += constant[pair] + now[4] * linear[pair];
                    }
                }
                EACH_PAIR {
                    lanes left = cov[pair];
                    for (int h = 0; h < j; h++) left -= ratio[h][j] * column[h][k];
                    column[j][k] = left;
                    if (k == j) {
                        for (int i = 0; i < LANES; i++) variance[i] = (left[i] < 0 ? 0 : left[i]) + now[2];
                        inverse = 1 / variance;
                        error[j] = known[0][j];
                        for (int h = 0; h < j; h++) error[j] -= ratio[h][j] * error[h];
                    } else
                        ratio[j][k] = left * inverse;
                }
                double product = 1;
                for (int i = 0; i < LANES && start + i < rows; i++) {
                    scales[number] += error[NEIGHBOURS][i] * error[NEIGHBOURS][i] / variance[i];
                    product *= variance[i];
                }
                logliks[number] += log(product);
            }
        }
        for (int64_t number = 0; number < count; number++) {
            double mean = scales[number] / (rows ? rows : 1);
            scales[number] = log(mean < 1e-8 ? 1e-8 : mean);
            logliks[number] = -(scales[number] + logliks[number] / (rows ? rows : 1)) / 2;
        }
    }
}
