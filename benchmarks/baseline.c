/* The limit: SGLD by hand in C, one thread, float32, hand-written gradients.
 *
 *   theta' = theta + h g(theta) + sqrt(2 h) xi
 *
 * Random bits: xoshiro256++ (Blackman & Vigna 2019). Normals: the ziggurat of 128 layers
 * (Marsaglia & Tsang 2000, in Doornik's 2005 form). Batches and normals are drawn inside the
 * loop. Rows are shuffled by the caller; blocks of n rows are visited in a fresh order every
 * pass, or n rows are drawn at random where random_rows is set.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static uint64_t s[4];

static inline uint64_t rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

static inline uint64_t bits(void) {
    uint64_t result = rotl(s[0] + s[3], 23) + s[0], t = s[1] << 17;
    s[2] ^= s[0]; s[3] ^= s[1]; s[1] ^= s[2]; s[0] ^= s[3];
    s[2] ^= t; s[3] = rotl(s[3], 45);
    return result;
}

static inline double uniform(void) { return ((bits() >> 11) + 0.5) * 0x1p-53; }

static inline uint32_t below(uint32_t n) { return (uint32_t)(((bits() >> 32) * n) >> 32); }

#define LAYERS 128
#define R 3.442619855899
#define V 9.91256303526217e-3
static double zig_x[LAYERS + 1], zig_ratio[LAYERS];

static void seed_all(uint64_t seed) {
    for (int i = 0; i < 4; i++) { /* splitmix64 */
        uint64_t z = (seed += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        s[i] = z ^ (z >> 31);
    }
    double f = exp(-0.5 * R * R);
    zig_x[0] = V / f;
    zig_x[1] = R;
    zig_x[LAYERS] = 0;
    for (int i = 2; i < LAYERS; i++) {
        zig_x[i] = sqrt(-2 * log(V / zig_x[i - 1] + f));
        f = exp(-0.5 * zig_x[i] * zig_x[i]);
    }
    for (int i = 0; i < LAYERS; i++) zig_ratio[i] = zig_x[i + 1] / zig_x[i];
}

static inline float normal(void) {
    for (;;) {
        uint64_t b = bits();
        unsigned i = b & (LAYERS - 1);
        double u = (double)((int64_t)b >> 10) * 0x1p-53; /* in [-1, 1), from bits above the layer's */
        if (fabs(u) < zig_ratio[i]) return (float)(u * zig_x[i]);
        if (i == 0) {
            double x, y;
            do {
                x = log(uniform()) / R;
                y = log(uniform());
            } while (-2 * y < x * x);
            return (float)(u < 0 ? x - R : R - x);
        }
        double x = u * zig_x[i];
        double f0 = exp(-0.5 * (zig_x[i] * zig_x[i] - x * x));
        double f1 = exp(-0.5 * (zig_x[i + 1] * zig_x[i + 1] - x * x));
        if (f1 + uniform() * (f0 - f1) < 1.0) return (float)x;
    }
}

void normals(uint64_t seed, long count, float *out) {
    seed_all(seed);
    for (long i = 0; i < count; i++) out[i] = normal();
}

static void shuffle(uint32_t *order, uint32_t count) {
    for (uint32_t i = count - 1; i > 0; i--) {
        uint32_t j = below(i + 1), k = order[i];
        order[i] = order[j];
        order[j] = k;
    }
}

/* W1: x ~ (N(t1, 2) + N(t1 + t2, 2)) / 2, t1 ~ N(0, 10), t2 ~ N(0, 1). */
void mixture(uint64_t seed, long steps, int thin, const float *x, int num_data, int n, float h,
             float *position, float *out) {
    seed_all(seed);
    uint32_t blocks = num_data / n, *order = malloc(blocks * sizeof *order), at = blocks;
    for (uint32_t i = 0; i < blocks; i++) order[i] = i;
    float t1 = position[0], t2 = position[1], sd = sqrtf(2 * h);
    for (long step = 0; step < steps; step++) {
        if (step % thin == 0) { *out++ = t1; *out++ = t2; }
        if (at == blocks) { shuffle(order, blocks); at = 0; }
        const float *row = x + (size_t)order[at++] * n;
        float g1 = 0, g2 = 0;
        for (int i = 0; i < n; i++) {
            float a = row[i] - t1, b = a - t2;
            float second = 1 / (1 + expf(0.25f * (b * b - a * a)));
            g1 += a - second * t2;
            g2 += second * b;
        }
        g1 = -0.1f * t1 + 0.5f * blocks * g1;
        g2 = -t2 + 0.5f * blocks * g2;
        t1 += h * g1 + sd * normal();
        t2 += h * g2 + sd * normal();
    }
    position[0] = t1;
    position[1] = t2;
    free(order);
}

/* W2: logistic regression, beta ~ N(0, 10 I). Eight partial sums let the compiler use vectors
 * without reassociating anything. */
void logistic(uint64_t seed, long steps, int thin, const float *X, const float *y, int num_data,
              int d, int n, int random_rows, float h, float *beta, float *out) {
    seed_all(seed);
    uint32_t blocks = num_data / n, *order = malloc(blocks * sizeof *order), at = blocks;
    for (uint32_t i = 0; i < blocks; i++) order[i] = i;
    float *g = malloc(d * sizeof *g), sd = sqrtf(2 * h);
    for (long step = 0; step < steps; step++) {
        if (step % thin == 0) { memcpy(out, beta, d * sizeof *out); out += d; }
        if (at == blocks) { shuffle(order, blocks); at = 0; }
        size_t first = (size_t)order[at++] * n;
        memset(g, 0, d * sizeof *g);
        for (int i = 0; i < n; i++) {
            size_t r = random_rows ? below(num_data) : first + i;
            const float *row = X + r * d;
            float part[8] = {0}, eta = 0;
            int j = 0;
            for (; j + 8 <= d; j += 8)
                for (int k = 0; k < 8; k++) part[k] += row[j + k] * beta[j + k];
            for (; j < d; j++) eta += row[j] * beta[j];
            for (int k = 0; k < 8; k++) eta += part[k];
            float residual = y[r] - 1 / (1 + expf(-eta));
            for (j = 0; j < d; j++) g[j] += residual * row[j];
        }
        for (int j = 0; j < d; j++)
            beta[j] += h * (blocks * g[j] - 0.1f * beta[j]) + sd * normal();
    }
    free(order);
    free(g);
}
