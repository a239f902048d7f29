"""Bugs in what is read off a NumPyro model."""

from .mutant import Mutant

LAWS = "tests/unit/bridge/test_numpyro_laws.py::"
REFUSALS = "tests/unit/bridge/test_numpyro_refusals.py::"

BRIDGE = [
    Mutant(
        "bridge: arrays of the model's own are met in double precision",
        "held = _both.trace(*_doubled(*given))", "held = given",
        LAWS + "test_a_model_may_close_over_arrays_of_double_precision",
    ),
    Mutant(
        "bridge: a row counts as often as the plate has members",
        "scale = scale / sizes[name]", "scale = scale / 1",
        LAWS + "test_rows_and_prior_add_up_to_numpyro[explicit_size]",
    ),
    Mutant(
        "bridge: a scale in the model is forgotten",
        "    scale = site[\"scale\"]\n", "    scale = None\n",
        LAWS + "test_rows_and_prior_add_up_to_numpyro[two_plates]",
    ),
    Mutant(
        "bridge: a prior that looks at rows sees zeros",
        "program = replace(program, whole=data, form=form)", "program = replace(program, form=form)",
        LAWS + "test_rows_and_prior_add_up_to_numpyro[looking]",
    ),
    Mutant(
        "bridge: the Jacobian of a support that depends on sites is left out",
        "return y, jnp.sum(t.log_abs_det_jacobian(x, y))", "return y, jnp.zeros(())",
        LAWS + "test_rows_and_prior_add_up_to_numpyro[masked]",
    ),
    Mutant(
        "bridge: NaN that the model masks is zero to it",
        "jnp.where(missing, jnp.nan, value)", "value",
        REFUSALS + "test_a_model_may_ask_where_nothing_was_measured",
    ),
    Mutant(
        "bridge: rows that depend on one another are taken alone",
        "    differs = _differing(whole[\"rows\"], alone[\"rows\"])\n", "    differs = None\n",
        REFUSALS + "test_the_full_density_where_rows_are_not_alone[neighbours]",
    ),
    Mutant(
        "bridge: of a discrete site the likeliest value alone counts",
        "jax.nn.logsumexp(jax.vmap(at)(combined))", "jnp.max(jax.vmap(at)(combined))",
        REFUSALS + "test_discrete_sites_of_rows_are_summed_out",
    ),
    Mutant(
        "bridge: what obs_mask would impute is counted",
        "if name not in self.form.dropped}", "}",
        REFUSALS + "test_obs_mask_takes_nothing_in_and_needs_no_parameters",
    ),
    Mutant(
        "bridge: values are compared with every row",
        "if site[\"cond_indep_stack\"] and got != batch:", "if False:",
        REFUSALS + "test_refusals_name_the_site",
    ),
    Mutant(
        "bridge: values that cannot be are left to the density",
        "        _check_values(name, site)\n", "",
        REFUSALS + "test_a_value_that_cannot_be_is_named_with_its_row",
    ),
    Mutant(
        "bridge: what is masked has to be possible",
        "bad = bad & np.broadcast_to(np.asarray(mask), bad.shape)", "pass",
        REFUSALS + "test_what_is_masked_may_be_any_number",
    ),
]  # fmt: skip
