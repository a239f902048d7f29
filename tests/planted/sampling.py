"""Bugs in the samplers, their gradients and preconditioners, the data's order and the loop."""

from .mutant import Mutant

HMC = "tests/laws/test_hmc.py::"
SGLD = "tests/laws/test_sgld.py::test_one_step_is_the_matrix_of_the_paper"
MOMENTUM = "tests/laws/test_momentum.py::test_one_step_is_the_matrix_of_the_paper"
QUARTIC = "tests/laws/test_momentum.py::test_one_step_on_a_quartic"
THERMOSTAT = "tests/laws/test_momentum.py::test_the_thermostat_by_hand"
EXCHANGE = "tests/laws/test_momentum.py::test_the_exchange_has_the_probability_of_the_paper"
RUN = "tests/laws/test_run.py::"
BY_HAND = RUN + "test_every_step_by_hand"
GRADIENT = "tests/contracts/test_gradient.py::test_gradient"
MEMORY = "tests/contracts/test_gradient.py::test_gradient_with_a_memory"
SOURCE = "tests/contracts/test_source.py::test_source"
ADAPTIVE = "tests/laws/test_adaptive.py::test_every_step_by_hand_with_rmsprop"
ACCUMULATORS = "tests/laws/test_adaptive.py::test_the_accumulators_after_known_gradients"
GAMMA = (
    "tests/laws/test_adaptive.py::test_gamma_keeps_the_law_where_the_metric_depends_on_the_position"
)
TEMPERED = "tests/laws/test_tempered.py::"
LEARNS = "tests/laws/test_adaptive.py::test_every_step_by_hand_with_an_estimator_that_learns"

PYTREE = "tests/unit/test_pytree.py::"

TILES = "tests/unit/gradient/test_tiles.py::"

SAMPLING = [
    Mutant(
        "tiles: rows that only fill the last one up count twice",
        "own = first + jnp.arange(size) >= begin", "own = jnp.arange(size) >= 0",
        TILES + "test_tiles_add_up_to_the_block",
    ),
    Mutant(
        "tiles: the last one begins where it would, beyond the block",
        "first = jnp.minimum(begin, self.block_size - size)", "first = begin",
        TILES + "test_tiles_add_up_to_the_block",
    ),
    Mutant(
        "tiles: they lie in the first block",
        "start, weight = self.block_start(x) + first, self.block_weight(x)",
        "start, weight = first, self.block_weight(x)",
        TILES + "test_tiles_add_up_to_the_block",
    ),
    Mutant(
        "estimate: the gradient at a step's position is that at every other",
        "if self.known is not None and z is self.known[0]:", "if self.known is not None:",
        TILES + "test_a_known_gradient_is_not_taken_again",
    ),
    Mutant(
        "loop: a run whose draws were dropped goes on at the old thinning",
        "self.kernel = replace(self.kernel, thin=2 * self.kernel.thin)", "pass",
        RUN + "test_a_run_that_outgrows_its_memory_keeps_every_second_draw_of_the_same_chain",
    ),
    Mutant(
        "sink: of the draws, the odd ones are kept",
        "values[2 * begin : 2 * end - 1 : 2]", "values[2 * begin - 1 : 2 * end - 2 : 2]",
        RUN + "test_a_run_that_outgrows_its_memory_keeps_every_second_draw_of_the_same_chain",
    ),
    Mutant(
        "loop: draws that a directory holds are dropped",
        "if wanted > most and directory is not None:", "if False:",
        RUN + "test_of_a_run_with_a_directory_no_draw_is_dropped",
    ),
    Mutant(
        "chunk: many parameters are finite where their sum is",
        "return ~jnp.isfinite(z @ jnp.zeros(z.shape[-1], z.dtype))", "return ~jnp.isfinite(jnp.sum(z, axis=-1))",
        RUN + "test_a_chain_is_lost_with_its_first_entry_that_is_not_finite",
    ),
    Mutant(
        "pytree: structures that do not know their type",
        "jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)",
        "jax.tree_util.register_dataclass(cls, names, statics)",
        PYTREE + "test_structures_of_all_types_differ",
    ),
    Mutant(
        "pytree: a layout without its types",
        'object.__setattr__(self, "kinds", types_of(self.treedef))\n\n    @classmethod\n    def of(cls, position: PyTree) -> Layout:', 'object.__setattr__(self, "kinds", ())\n\n    @classmethod\n    def of(cls, position: PyTree) -> Layout:',
        PYTREE + "test_a_position_of_one_type_is_never_sampled_as_another",
    ),
    Mutant(
        "halving: half of h with momentum too",
        "(2 if isinstance(setup.sampler, SGLD) else 4)", "2",
        "tests/unit/diagnose/test_predictions.py::test_half_the_step_is_half_the_heat_of_noisy_gradients",
    ),
    Mutant(
        "pytree: types of the user's with one structure share what was compiled",
        "if any(seen != kinds for seen in same):", "if any(seen is None for seen in same):",
        PYTREE + "test_types_of_the_users_that_jax_may_mistake_are_told_apart",
    ),
    Mutant(
        "HMC: accepted without the energy of the end",
        "gained = after - before + 0.5", "gained = before - before + 0.5",
        HMC + "test_the_law_is_left_as_it_is",
    ),
    Mutant(
        "HMC: a refused trajectory's gradient is kept",
        "for new, old in zip(end, self, strict=True)", "for new, old in zip(end, (*self[:2], *end[2:]), strict=True)",
        HMC + "test_a_trajectory_starts_from_what_the_last_one_found",
    ),
    Mutant(
        "HMC: log p of another temperature is kept",
        "fresh = start.temperature != T", "fresh = jnp.isnan(start.temperature)",
        HMC + "test_another_temperature_has_another_density",
    ),
    Mutant(
        "HMC: no first kick from the gradient that is known",
        "jnp.where(fresh, 0.0, 0.5)", "jnp.where(fresh, 0.0, 0.0)",
        HMC + "test_a_trajectory_starts_from_what_the_last_one_found",
    ),
    Mutant(
        "HMC: momenta in another metric than positions",
        "delta * D.pullback(gradient)", "delta * D.noise(gradient)",
        HMC + "test_a_trajectory_is_blackjaxs_in_the_same_metric",
    ),
    Mutant(
        "HMC: momenta at T = 1",
        "jnp.sqrt(temperature) * noise[0]", "noise[0]", HMC + "test_the_law_is_left_as_it_is",
    ),
    Mutant(
        "HMC: whole kicks at the ends",
        "end, 0.5, 1.0", "end, 1.0, 1.0",
        HMC + "test_a_trajectory_is_blackjaxs_in_the_same_metric",
    ),
    Mutant(
        "SGLD: noise of sd h, not sqrt(2 h)",
        "variance = 2 * h * T\n", "variance = h * h * T\n", SGLD,
    ),
    Mutant(
        "SGLD: no preconditioner in the noise",
        "D.noise(jnp.sqrt(variance) * noise)", "jnp.sqrt(variance) * noise", SGLD,
    ),
    Mutant(
        "SGLD: temperature as an sd",
        "variance = 2 * h * T\n", "variance = 2 * h * T**2\n", SGLD,
    ),
    Mutant(
        "SGLD: temperature on the drift too",
        "D.drift(grad(state.position)), D.noise", "D.drift(grad(state.position)) / T, D.noise", SGLD,
    ),
    Mutant(
        "SGLD: noise correction of order h",
        "- h * h * self.noise_correction", "- h * self.noise_correction",
        "tests/laws/test_sgld.py::test_noise_correction_is_exact",
    ),
    Mutant(
        "minibatch: N/n missing",
        "+ scale * self.posterior.log_likelihood_free", "+ self.posterior.log_likelihood_free", GRADIENT,
    ),
    Mutant(
        "minibatch: N/n on the prior",
        "return prior + scale * self.posterior", "return scale * prior + scale * self.posterior", GRADIENT,
    ),
    Mutant(
        "blocks scaled by N/n though the last is shorter",
        "Batch(rows, numbers, float(self.num_blocks)",
        "Batch(rows, numbers, self.num_data / self.batch_size", GRADIENT,
    ),
    Mutant(
        "the row that fills a short block counts",
        "jnp.where(k < self._larger, 1.0, 0.0)", "jnp.where(k < self._larger, 1.0, 1.0)", GRADIENT,
    ),
    Mutant(
        "control variates: sign",
        "tilt = self.total - batch.scale * at_center", "tilt = self.total + batch.scale * at_center",
        GRADIENT,
    ),
    Mutant(
        "SVRG: centre never refreshed",
        "(step + 1) % self.period == 0", "(step + 1) % self.period < 0", LEARNS,
    ),
    Mutant(
        "SVRG: centre without its gradient",
        "fresh = lambda: Memory(z, sums.likelihood_gradient(problem, z))",
        "fresh = lambda: Memory(z, memory.total)", MEMORY,
    ),
    Mutant(
        "SAGA: sum not updated with its table",
        "fresh, mode=\"drop\"), total)", "fresh, mode=\"drop\"), memory.total)", MEMORY,
    ),
    Mutant(
        "SAGA: a row drawn twice counts twice",
        "first = counts & ~jnp.any(jnp.tril(same, -1), axis=1)", "first = jnp.any(same, axis=1)",
        MEMORY,
    ),
    Mutant(
        "SGHMC: explicit Euler, the old velocity moves the position",
        "State(state.position + v, v)", "State(state.position + state.velocity, v)", QUARTIC,
    ),
    Mutant(
        "SGHMC: momentum drawn anew at each call",
        "(1 - self.friction) * state.velocity", "jnp.sqrt(h * T) * D.noise(noise)", QUARTIC,
    ),
    Mutant(
        "SGHMC: noise estimate not taken off",
        "2 * (self.friction - self.noise_estimate) * h", "2 * self.friction * h", MOMENTUM,
    ),
    Mutant(
        "BAOA: temperature as an sd",
        "jnp.sqrt(T * -jnp.expm1(2 * decay))", "T * jnp.sqrt(-jnp.expm1(2 * decay))", MOMENTUM,
    ),
    Mutant(
        "BAOA: noise of a step half as long",
        "-jnp.expm1(2 * decay)", "-jnp.expm1(decay)", QUARTIC,
    ),
    Mutant(
        "UBU: position and momentum noise independent",
        "jnp.sqrt(T * -jnp.expm1(-2 * x)) * z[0]", "jnp.sqrt(T * -jnp.expm1(-2 * x)) * z[1]",
        "tests/laws/test_momentum.py::test_the_flow_of_ubu_is_the_exact_one",
    ),
    Mutant(
        "UBU: both halves by the same normals",
        "noise[2:], D, temperature", "noise[:2], D, temperature", MOMENTUM,
    ),
    Mutant(
        "thermostat: |v| for |v|^2",
        "energy = p**2 if self.per_parameter else jnp.mean(p**2)",
        "energy = jnp.abs(p) if self.per_parameter else jnp.mean(jnp.abs(p))", THERMOSTAT,
    ),
    Mutant(
        "thermostat: held at 1, not at T",
        "x + delta * (energy - T)", "x + delta * (energy - 1)", THERMOSTAT,
    ),
    Mutant(
        "replica exchange: the wrong way round",
        "b * (U[k] - U[k + 1]) * T", "b * (U[k + 1] - U[k]) * T", EXCHANGE,
    ),
    Mutant(
        "dense preconditioner: factor transposed",
        "return self.factor @ xi", "return xi @ self.factor", SGLD,
    ),
    Mutant(
        "Gamma dropped while the metric adapts",
        "return matrix, fresh, lambda q: estimate(q) + shift", "return matrix, fresh, estimate", GAMMA,
    ),
    Mutant(
        "Gamma without T",
        "T * gamma / matrix.array", "gamma / matrix.array", GAMMA,
    ),
    Mutant(
        "Gamma still there when the metric is frozen",
        "shift = jnp.where(adapting, T * gamma / matrix.array, 0.0)",
        "shift = T * gamma / matrix.array", ADAPTIVE,
    ),
    Mutant(
        "RMSprop: started at 0 without correction",
        "_diagonal(memory.v / jnp.maximum(share, 1e-30), self.epsilon)",
        "_diagonal(memory.v, self.epsilon)", ACCUMULATORS,
    ),
    Mutant(
        "RMSprop: a parameter without gradient gets the noise of 1 / epsilon",
        "v = jnp.where(seen, v, jnp.where(mean > 0, mean, 1.0))", "v = jnp.where(seen, v, 0.0)",
        ACCUMULATORS,
    ),
    Mutant(
        "RMSprop: sees the sum's gradient, not the mean's",
        "estimate(q) / count)", "estimate(q) / 1)", ADAPTIVE,
    ),
    Mutant(
        "RMSprop: never frozen",
        "adapting = (step < kernel.burn_in) | (not D.freeze)", "adapting = step >= 0", ADAPTIVE,
    ),
    Mutant(
        "the order of the data starts over in each chunk",
        "chunk((self.seed, chain), step, end - step)", "chunk((self.seed, chain), 0, end - step)", RUN + "test_the_length_of_a_chunk_changes_no_bit",
    ),
    Mutant(
        "the order of the data starts over in each block",
        "dynamic_slice_in_dim(order, begin + i * size, size)", "dynamic_slice_in_dim(order, begin, size)",
        RUN + "test_the_length_of_a_chunk_changes_no_bit",
    ),
    Mutant(
        "a minibatch is used in two steps",
        "return np.concatenate(parts)[start : start + n] if parts",
        "return np.concatenate(parts)[(start + np.arange(n)) // 2] if parts", SOURCE,
    ),
    Mutant(
        "chains share the order of the data",
        "chunk((self.seed, chain), step, end - step)", "chunk((self.seed, 0), step, end - step)", BY_HAND,
    ),
    Mutant(
        "the order of the data depends on who asked before",
        "    key = [np.uint64(seed % 2**64)",
        "    counter = generator.__dict__['at'] = generator.__dict__.get('at', 0) + 1\n"
        "    key = [np.uint64(seed % 2**64)", SOURCE,
    ),
    Mutant(
        "a key used in every block of noise",
        "jax.random.fold_in(jax.random.fold_in(kernel.key, chain), block)",
        "jax.random.fold_in(kernel.key, chain)", RUN + "test_no_noise_is_used_twice",
    ),
    Mutant(
        "a key used by every chain",
        "jax.random.fold_in(jax.random.fold_in(kernel.key, chain), block)",
        "jax.random.fold_in(kernel.key, block)", RUN + "test_no_noise_is_used_twice",
    ),
    Mutant(
        "a draw's weight is the step after its own",
        "z, g, moved, h, T = jax.tree.map(at, rows)",
        "z, g, moved, h, T = jax.tree.map(at, (*rows[:3], jnp.roll(rows[3], -1), rows[4]))",
        RUN + "test_the_weight_is_read_off_the_move",
    ),
    Mutant(
        "a draw's gradient is the next one's",
        "(z, estimate(z) if kernel.record_gradient else None, moved)",
        "(z, estimate(new.position) if kernel.record_gradient else None, moved)",
        RUN + "test_a_recorded_gradient_is_the_one_at_its_draw",
    ),
    Mutant(
        "tempering: the Jacobian is tempered too",
        "return value + temperature * self.transform.log_det(free)",
        "return value + self.transform.log_det(free)", TEMPERED + "test_the_target_is_the_constrained_density_with_the_jacobian_whole",
    ),
    Mutant(
        "tempering: a schedule leaves the target at its start",
        "kernel.gradient.at(kernel.problem.at_temperature(T), x, memory)",
        "kernel.gradient.at(kernel.problem, x, memory)", TEMPERED + "test_a_schedule_takes_the_target_along",
    ),
    Mutant(
        "tempering: what is known is known of T = 1",
        "return problem.at_temperature(problem.array(float(first)))", "return problem",
        TEMPERED + "test_the_shape_of_a_law_that_only_widens_is_the_same_at_every_temperature",
    ),
    Mutant(
        "replica exchange: by the cold chain's target, Jacobian included",
        "self._order(q, at(0.0), t,", "self._order(q, grad, t,", TEMPERED + "test_a_step_of_replicas_by_hand",
    ),
    Mutant(
        "replica exchange: all chains by the cold one's target",
        "replica, at(ti * temperature), step_size", "replica, grad, step_size",
        TEMPERED + "test_a_step_of_replicas_by_hand",
    ),
]  # fmt: skip
