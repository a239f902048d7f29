#!/usr/bin/env bash
# jax 0.10.2 (0.12.0.1 the same): jax.random.normal in bfloat16 has a mean of -0.012, and Langevin dynamics that take their noise from it drift.
# Guess before the run: normals of float32 rounded to bfloat16, so mean 0, variance 1 and a largest value near 5.
# Seen in 10 million: 128 different values, mean -0.0118, variance 0.994, none beyond 2.9. float16: mean -0.0018, none beyond 3.5.
# jax.random.exponential in bfloat16 has mean 0.974 and variance 0.873 (1 and 1), largest value 4.8.
# Cause: the uniform under the inverse error function has the 7 bits of the type, and starts at the lower end of each interval.
# Langevin dynamics of a standard normal in float32, with only the noise drawn in bfloat16: the mean is
# E[noise] sqrt(2 / h) sds off, half a sd at h = 0.001. A smaller step makes it worse.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet --disable-pip-version-check 'jax==0.10.2' 'jaxlib==0.10.2' 'numpy==2.4.6'
"$folder/env/bin/python" - <<'EOF'
import jax, jax.numpy as jnp, numpy as np

key, h = jax.random.key(0), 1e-3

def moments(draw, dtype):
    x = np.asarray(draw(key, (10_000_000,), dtype)).astype(np.float64)
    return x.mean(), x.var(), np.abs(x).max(), len(np.unique(x))

def langevin(dtype):
    """Return the mean over 4,000 chains of a standard normal, after 10 times the time it takes to forget."""

    def step(i, z):
        noise = jax.random.normal(jax.random.fold_in(key, i), z.shape, dtype).astype(jnp.float32)
        return z - h * z + jnp.sqrt(2 * h) * noise

    return float(jax.jit(lambda z: jax.lax.fori_loop(0, 10_000, step, z))(jnp.zeros(4000)).mean())

print("jax", jax.__version__)
found = {}
for name, draw in {"normal": jax.random.normal, "exponential": jax.random.exponential}.items():
    for dtype in (jnp.bfloat16, jnp.float16, jnp.float32):
        found[name, dtype] = mean, variance, largest, count = moments(draw, dtype)
        print(f"{name} {dtype.__name__}: mean {mean:.4f} variance {variance:.4f} largest {largest:.2f} values {count}")
shift = {dtype: langevin(dtype) for dtype in (jnp.bfloat16, jnp.float32)}
print("Langevin dynamics, mean in sds:", {dtype.__name__: round(mean, 3) for dtype, mean in shift.items()})
normal = found["normal", jnp.bfloat16]
assert normal[3] == 128 and abs(normal[0] + 0.0118) < 0.002 and normal[2] < 3, "the behaviour has changed"
assert found["exponential", jnp.bfloat16][1] < 0.9, "the behaviour has changed"
assert shift[jnp.bfloat16] < -0.4 and abs(shift[jnp.float32]) < 0.1, "the behaviour has changed"
EOF
