"""What the Gaussian does not show: gradients of another function, mass far out, modes out of reach."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import sgld
from sgld.approximation import rays as profiles
from sgld.approximation import rays as rays_room
from sgld.approximation.known import Doubt, Known
from sgld.approximation.mode import gaussian_at_mode
from sgld.approximation.modes import KnownModes
from sgld.approximation.rays import rays
from sgld.diagnostics import hidden_mass
from sgld.diagnostics.hidden_mass import remaining_doubts
from sgld.inference.tuning.survey import survey_posterior
from sgld.model.prepare import prepare

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = (RNG.random(60) < 1 / (1 + np.exp(-X[:, 0]))).astype(np.float32)
NORMAL = (RNG.normal(size=200_000) + 1).astype(np.float32)


def of(log_density, d=1, start=0.0, data=None, likelihood=None):
    problem = prepare(sgld.Posterior(log_density, likelihood), data, np.full(d, start, np.float32))
    return problem, gaussian_at_mode(problem).gaussian


def misfit(*args, **kw):
    return hidden_mass.misfit(*of(*args, **kw), np.random.default_rng(1)).size


def steepest(*args, temperature=1.0, **kw):
    found = rays(*of(*args, **kw), np.random.default_rng(1), temperature)
    return max(found, key=lambda ray: ray.share)


def square(x):
    return -0.5 * jnp.sum(x**2)


def logistic(x, row):
    return row[1] * (row[0] @ x) - jax.nn.softplus(row[0] @ x)


@jax.custom_vjp
def twice_as_steep(x):
    return square(x)


twice_as_steep.defvjp(lambda x: (square(x), x), lambda x, g: (-2 * g * x,))


@pytest.mark.parametrize("case", [
    dict(log_density=square, d=30),
    dict(log_density=square, d=4, data=(X, Y), likelihood=logistic),
    dict(log_density=lambda x: jnp.sum(3 * x - 3 * jnp.exp(x)), d=2),
    dict(log_density=lambda x: -3 * jnp.sum(jnp.log1p(x**2 / 5)), d=2),
])  # fmt: skip
def test_gradients_of_smooth_densities_belong_to_them(case):
    assert misfit(**case) < 1e-4


@pytest.mark.parametrize("case", [
    dict(log_density=lambda x: square(x - 1.5) - jnp.sum(jnp.abs(x))),
    dict(log_density=lambda x: square(x - 1.5) - jnp.sum(jnp.abs(x)), d=124),
    dict(log_density=lambda x: square(x) - 4 * jnp.sum(jnp.maximum(0, 1 - x)), d=3),
])  # fmt: skip
def test_kinks_are_no_fault(case):
    assert misfit(**case) <= 0.05


@pytest.mark.parametrize("log_density", [
    lambda x: square(x) + jnp.sum(jnp.where(x > 0.5, 2.0, 0.0)),
    lambda x: square((x - 0.8) / 0.3) + jnp.sum(jnp.where((x > 0) & (x < 1), 0.0, -1e4)),
    lambda x: square(jnp.round(x) - 3) + square(x / 5),
    lambda x: square(x) + square(jax.lax.stop_gradient(x)),
    lambda x: square(x) + jnp.array([0.0, 1.5])[jnp.argmax(jnp.append(x, 0.3))],
    twice_as_steep,
])  # fmt: skip
def test_gradients_of_another_function_are_found(log_density):
    problem, gaussian = of(log_density, start=0.2)
    assert hidden_mass.misfit(problem, gaussian, np.random.default_rng(1)).size > 0.3
    found = hidden_mass.check_tails_and_modes(problem, gaussian, np.random.default_rng(1), 1.0)
    assert [doubt.kind for doubt in found.doubts] == ["gradient"]


def test_rounding_is_no_fault():
    assert misfit(lambda x: square(x) + 1e7) <= 0.05


@pytest.mark.parametrize(("at", "told"), [(1.0, ["gradient"]), (1.015, [])])
def test_a_jump_on_some_rows_is_told_where_all_rows_see_it(at, told):
    # 5 sds of the posterior away, .7 of that of 2048 rows
    problem, gaussian = of(
        lambda x: jnp.sum(jnp.where(x > at + 0.003, 2.0, 0.0)), data=NORMAL, start=1.0,
        likelihood=lambda x, y: -0.5 * (y - x[0]) ** 2,
    )  # fmt: skip
    found = hidden_mass.check_tails_and_modes(problem, gaussian, np.random.default_rng(1), 1.0)
    assert [doubt.kind for doubt in found.doubts] == told


def two_modes(x, gap):
    return square(x[1:]) + jnp.logaddexp(
        jnp.log(0.6) - 0.5 * (x[0] - 1) ** 2, jnp.log(0.4) - 0.5 * (x[0] - 1 - gap) ** 2
    )


def halo(x, w=0.01, wide=10.0):
    return jnp.sum(
        jnp.logaddexp(jnp.log(1 - w) - 0.5 * x**2, jnp.log(w / wide) - 0.5 * (x / wide) ** 2)
    )


def shoulder(x):
    far = jnp.log(0.02 / 50) - x / 50 + jax.nn.log_sigmoid(4 * x)
    return jnp.sum(jnp.logaddexp(jnp.log(0.98) - 0.5 * x**2 - 0.919, far))


@pytest.mark.parametrize("case", [
    dict(log_density=halo), dict(log_density=shoulder),
    dict(log_density=lambda x: two_modes(x, 100.0), start=0.5),
    dict(log_density=lambda x: two_modes(x, 100.0), d=20, start=0.5),
    dict(log_density=lambda x: two_modes(x, 10.0), d=150, start=0.5),
])  # fmt: skip
def test_mass_beyond_4_sds_is_seen(case):
    ray = steepest(**case)
    assert ray.share > 0.4 and ray.parameter == 0 and abs(ray.sides()[0].place) > 8


@pytest.mark.parametrize("case", [
    dict(log_density=square, d=20),
    dict(log_density=square, d=4, data=(X, Y), likelihood=logistic),
    dict(log_density=lambda x: jnp.sum(3 * x - 3 * jnp.exp(x))),
    dict(log_density=lambda x: -jnp.sum(jnp.abs(x)) + 0.5 * square(x)),
])  # fmt: skip
def test_there_is_none_on_well_behaved_posteriors(case):
    assert steepest(**case).share < 0.1


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_a_gaussian_has_its_share_at_every_temperature(temperature):
    truth = 1 - integrate.quad(lambda t: t**2 * stats.norm.pdf(t), -4, 4)[0]
    assert steepest(square, temperature=temperature).share == pytest.approx(truth, rel=0.5)


@pytest.mark.parametrize("df", [5.0, 8.0, 15.0])
def test_the_share_of_a_student_t_is_its_integral(df):
    unit = np.sqrt(df / (df + 1))  # the sd of the Gaussian at its mode
    inside = integrate.quad(lambda t: t**2 * stats.t.pdf(t, df), -4 * unit, 4 * unit)[0]
    truth = 1 - inside / stats.t.var(df)
    share = steepest(lambda x: -(df + 1) / 2 * jnp.sum(jnp.log1p(x**2 / df))).share
    assert share == pytest.approx(truth, abs=0.05)


@pytest.mark.parametrize(("d", "gap"), [(1, 100.0), (20, 100.0), (150, 10.0)])
def test_tops_on_rays_are_where_other_modes_are_looked_for(d, gap):
    problem, _ = of(lambda x: two_modes(x, gap), d=d, start=0.5)
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    assert known.modes is not None
    np.testing.assert_allclose(known.modes.z[1], [1 + gap] + [0.0] * (d - 1), atol=0.1)
    assert known.doubts == ()  # what lies there is that mode


def foot_and_mode(z, beside):
    """A mode 30 sds out along x[0], `beside` off it along x[1], and beneath all a foot along x[0] alone."""
    foot = -7.0 - 0.5 * (z[0] / 60) ** 2 - 0.5 * z[1] ** 2
    mode = -1.0 - 0.5 * ((z[0] - 30) / 3) ** 2 - 0.5 * (z[1] - beside) ** 2
    return jnp.logaddexp(jnp.logaddexp(-0.5 * jnp.sum(z**2), mode), foot)


@pytest.mark.parametrize(
    "beside, foot", [(0.0, False), (40.0, True)], ids=["on the ray", "beside it"]
)
def test_a_mode_explains_what_is_as_dense_as_its_gaussian_says(beside, foot):
    """It did so for all that its sds reach along the ray, however far it was beside it: an sd of .45 of the truth."""
    problem, gaussian = of(lambda z: foot_and_mode(z, beside), 2)
    (ray,) = rays(problem, gaussian, np.random.default_rng(0), parameters=[0])
    doubts = tuple(hidden_mass._doubts(problem, gaussian, ray))
    assert {doubt.kind for doubt in doubts} == {"tails"}
    places = np.array([[0.0, 0.0], [30.0, beside]])
    modes = KnownModes(places, np.array([0.0, -1.0]), np.zeros(2))
    left = hidden_mass.unexplained(problem, doubts, modes, 1.0)
    above = [doubt for doubt in left if doubt.at[0] > 0]
    assert bool(above) is foot
    if foot:
        assert above[0].modes == () and above[0].share == doubts[0].share
    gradient = Doubt("gradient", "a jump")
    assert hidden_mass.unexplained(problem, (gradient,), modes, 1.0) == (gradient,)


def test_every_suspicion_is_told_and_each_side_by_itself():
    """One that chains settle says nothing of the others: the first alone was told, and its run was `trusted`."""

    def two(z):
        wide = jnp.logaddexp(-0.5 * z[0] ** 2, -2.0 - 0.5 * (z[0] / 8) ** 2)
        foot = jnp.logaddexp(-0.5 * z[1] ** 2, -9.0 - 0.5 * (z[1] / 30) ** 4)
        return wide + foot

    problem, gaussian = of(two, 2)
    doubts = hidden_mass.check_tails_and_modes(
        problem, gaussian, np.random.default_rng(0), 1.0
    ).doubts
    along = [(int(np.argmax(np.abs(d.toward))), np.sign(d.at).sum()) for d in doubts if d.ray]
    assert sorted(along) == [(0, -1.0), (0, 1.0), (1, -1.0), (1, 1.0)]
    known = Known(gaussian, doubts=doubts)
    rng = np.random.default_rng(1)
    z = rng.standard_normal((64, 800, 2))
    z[..., 0] *= np.where(
        rng.random((64, 800)) < 0.52, 8, 1
    )  # all of the first, nothing of the second
    told = remaining_doubts(known, z, exact=True)
    assert told and all("'x[0]'" not in sentence for sentence in told)
    assert sum("'x[1]'" in sentence for sentence in told) == 2


def test_the_outer_half_of_a_side_is_asked_for_by_itself():
    _, gaussian = of(square)
    doubt = Doubt("tails", "more above", 0.9, np.array([20.0]), np.array([1.0]))
    z = np.random.default_rng(0).standard_normal((4, 500, 1))
    z[:, :90] += 15  # as much as there is, and none of it where the outer half lies
    assert remaining_doubts(Known(gaussian, doubts=(doubt,)), z, exact=True) == ("more above",)


SPREAD = np.random.default_rng(3)
RATES = SPREAD.uniform(0.5, 3, 12).astype(np.float32)
LEVELS = (1 - np.exp(-1.2 * RATES) + 0.1 * SPREAD.standard_normal(12)).astype(np.float32)


def saturating(p):
    """a (1 - exp(-r x)) with log r free: from some rate on the curve is flat."""
    rise = -jnp.expm1(-jnp.exp(jnp.minimum(p[1], 50.0)) * RATES)
    misfit = square((LEVELS - p[0] * rise) / 0.1)
    return misfit - 0.5 * (p[1] / 100) ** 2 - 0.5 * (p[0] / 10) ** 2


def test_a_curved_plateau_is_seen_by_its_profile_alone():
    problem = prepare(sgld.Posterior(saturating), None, np.array([1.0, 0.0], np.float32))
    gaussian = gaussian_at_mode(problem).gaussian
    assert max(ray.share for ray in rays(problem, gaussian, np.random.default_rng(0))) < 0.01
    (doubt,) = hidden_mass.check_tails_and_modes(
        problem, gaussian, np.random.default_rng(0), 1.0
    ).doubts
    assert doubt.kind == "tails" and doubt.ray.share > 0.9 and "'x[1]'" in doubt.sentence


@pytest.mark.parametrize("case", [
    dict(log_density=square, d=10),
    dict(log_density=square, d=4, data=(X, Y), likelihood=logistic),
    dict(log_density=lambda x: -0.5 * (x[0] ** 2 + (x[1] - 0.3 * x[0] ** 2) ** 2), d=2),
])  # fmt: skip
def test_profiles_of_well_behaved_posteriors_hold_nothing_far_out(case):
    problem, gaussian = of(**case)
    seen = rays(problem, gaussian, np.random.default_rng(0))
    assert all(ray.share < 0.1 for ray in profiles.followed(problem, gaussian, seen, 1.0))


def test_a_profile_is_the_marginal():
    """Of a banana: x is N(0, 1) whatever the other parameter does."""
    problem, gaussian = of(lambda x: -0.5 * (x[0] ** 2 + ((x[1] - x[0] ** 2) * 5) ** 2), d=2)
    ray = rays(problem, gaussian, np.random.default_rng(0), parameters=[0])[0]
    t, value, z = profiles._profile(problem, gaussian, ray, 1.0, 1.0)
    np.testing.assert_allclose(value[t < 6], -0.5 * t[t < 6] ** 2, atol=0.02)
    np.testing.assert_allclose(z[:, 1], z[:, 0] ** 2, rtol=0.01, atol=0.01)


def test_a_density_of_inf_is_told_with_its_place():
    problem, gaussian = of(lambda x: square(x) + jnp.sum(jnp.where(x > 6, jnp.inf, 0.0)), d=2)
    doubts = hidden_mass.check_tails_and_modes(
        problem, gaussian, np.random.default_rng(0), 1.0
    ).doubts
    assert [doubt.kind for doubt in doubts] == ["infinite"] and doubts[0].at.max() > 6
    near, gaussian = of(lambda x: square(x) + jnp.sum(jnp.where(x > 1.0, jnp.inf, 0.0)))
    doubts = hidden_mass.check_tails_and_modes(near, gaussian, np.random.default_rng(0), 1.0).doubts
    assert doubts[0].kind == "infinite" and 1 < doubts[0].at[0] < 4


def test_a_scale_that_underflows_far_out_is_no_density_of_inf():
    def normal(x, y):
        return -x[1] - 0.5 * ((y - x[0]) * jnp.exp(-x[1])) ** 2

    def guarded(x, y):
        value = normal(x, y)
        return jnp.where(x[1] < -80, jnp.inf, value)  # as log(exp(x)) is, where exp(x) is 0

    problem, gaussian = of(square, d=2, data=NORMAL[:50], likelihood=guarded)
    doubts = hidden_mass.check_tails_and_modes(
        problem, gaussian, np.random.default_rng(0), 1.0
    ).doubts
    assert doubts == ()


def test_chains_that_have_been_far_out_settle_a_doubt_about_tails():
    problem, gaussian = of(halo)
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    assert [doubt.kind for doubt in known.doubts] == ["tails", "tails"]  # above and below
    rng = np.random.default_rng(0)
    wide = rng.random((64, 800, 1)) < 0.01
    right = rng.standard_normal(wide.shape) * np.where(wide, 10, 1)
    stuck = rng.standard_normal(wide.shape)
    assert remaining_doubts(known, right, exact=True) == ()
    for z, exact in ((right, False), (stuck, True)):
        assert remaining_doubts(known, z, exact=exact) == tuple(
            doubt.sentence for doubt in known.doubts
        )
    wrong = Known(gaussian, doubts=(Doubt("gradient", "a jump"), Doubt("infinite", "inf")))
    assert remaining_doubts(wrong, right, exact=True) == ("inf",)
    assert remaining_doubts(wrong, right, exact=False) == ("a jump", "inf")


def test_a_doubt_is_told_in_the_notes():
    problem, _ = of(halo)
    notes = survey_posterior(problem, 0, 1.0, by_hand=True).notes
    assert any("possible hidden mass" in n for n in notes)
    problem, _ = of(halo, d=6)
    notes = survey_posterior(problem, 0, 1.0, by_hand=True).notes
    assert sum("possible hidden mass" in note for note in notes) == 3
    assert "9 more findings of this kind were made." in notes


def test_only_the_side_of_the_doubt_settles_it():
    _, gaussian = of(square)
    doubt = Doubt("tails", "more above", 0.9, np.array([20.0]), np.array([1.0]))
    known = Known(gaussian, doubts=(doubt,))
    z = np.random.default_rng(0).standard_normal((4, 500, 1))
    z[:, :50] += 20.5
    assert remaining_doubts(known, z, exact=True) == ()
    assert remaining_doubts(known, -z, exact=True) == ("more above",)
    z = np.random.default_rng(0).standard_normal((4, 500, 1))
    z[:, :5] += 20.5  # four fifths of all there is: of nine tenths that is less than half
    assert remaining_doubts(known, z, exact=True) == ("more above",)


def test_rays_follow_what_is_correlated():
    """Along Sigma e_i the density is the marginal, though the others are correlated with it."""
    precision = jnp.array(np.linalg.inv([[1.0, 0.99], [0.99, 1.0]]), jnp.float32)
    problem, gaussian = of(lambda x: -0.5 * x @ precision @ x, d=2)
    for ray in rays(problem, gaussian, np.random.default_rng(0)):
        near = np.abs(ray.t) < 10
        np.testing.assert_allclose(ray.value[near], -0.5 * ray.t[near] ** 2, rtol=1e-3, atol=1e-3)


def test_a_profile_ends_where_there_is_no_curvature(monkeypatch):
    """Of a curvature that is NaN in single precision no width is made up."""
    problem, gaussian = of(lambda x: -0.5 * jnp.sum((x * jnp.array([1.0, 100.0])) ** 2), d=2)
    (ray,) = rays(problem, gaussian, np.random.default_rng(0), parameters=[0])
    real = profiles.sums.curvature
    lost = lambda problem, z: real(problem, z) * (1.0 if float(z[0]) < 3 else np.nan)  # noqa: E731
    monkeypatch.setattr(profiles.sums, "curvature", lost)
    t, value, _ = profiles._profile(problem, gaussian, ray, 1.0, 1.0)
    assert 2 < t[-1] < 3
    np.testing.assert_allclose(value, -0.5 * t**2, rtol=1e-3)


def test_a_profile_has_the_others_volume():
    """The sd of y grows as e^x: x alone is N(0, 1)."""
    problem, gaussian = of(lambda x: -0.5 * (x[0] ** 2 + (x[1] * jnp.exp(-x[0])) ** 2) - x[0], d=2)
    ray = rays(problem, gaussian, np.random.default_rng(0), parameters=[0])[0]
    t, value, _ = profiles._profile(problem, gaussian, ray, 1.0, 1.0)
    truth = -0.5 * (gaussian.center[0] + t * ray.direction[0]) ** 2 + 0.5 * gaussian.center[0] ** 2
    np.testing.assert_allclose(value[t < 5], truth[t < 5], atol=0.02)


def halo_in_some(x, k=5, w=0.03, wide=10.0):
    spread = jnp.where(jnp.arange(x.size) < k, wide, 1.0)
    far = jnp.log(w) - k * jnp.log(wide) - 0.5 * jnp.sum((x / spread) ** 2)
    return jnp.logaddexp(jnp.log1p(-w) - 0.5 * jnp.sum(x**2), far)


def test_a_halo_in_half_of_the_parameters_shows_in_their_width():
    """No axis and no random direction leads into it, and no gradient: only how wide the others are out there."""
    problem, gaussian = of(halo_in_some, d=10)
    rng = np.random.default_rng(0)
    seen = rays(problem, gaussian, rng)
    assert max(ray.share for ray in seen) < 0.01
    found = profiles.followed(problem, gaussian, seen, 1.0)
    truth = 0.03 * 100 / (0.97 + 0.03 * 100)  # but for what lies within 4 sds
    # a side of the ray may be the straight one still
    assert 0.3 * truth < max(ray.share for ray in found) < truth
    assert {ray.parameter for ray in found} <= set(range(5))
    assert hidden_mass.check_tails_and_modes(problem, gaussian, rng, 1.0).doubts[0].kind == "tails"


def test_a_step_up_between_two_points_of_a_coarse_ray_is_found():
    def stepped(x, c=4.5):
        return -0.5 * jnp.sum(x**2) + 12 * jnp.log(0.4 + 0.55 / (1 + jnp.exp(-10 * (x[0] - c))))

    problem, gaussian = of(stepped, d=6)
    (ray,) = rays(problem, gaussian, np.random.default_rng(0), parameters=[0])
    assert any(4.5 < t < 5.2 for t, _ in ray.tops)


@pytest.mark.parametrize("at", [2.0, 3.5])
def test_a_hill_within_4_sds_is_a_top_too(at):
    def hill(x):
        return jnp.logaddexp(-0.5 * jnp.sum(x**2), 2 - 200 * jnp.sum((x - at) ** 2))

    problem, gaussian = of(hill)
    (ray,) = rays(problem, gaussian, np.random.default_rng(0))
    assert any(abs(t - at) < 0.1 for t, _ in ray.tops)


def test_a_narrow_mode_on_a_foot_is_met_by_its_rise():
    def on_a_foot(x, at=79.5):
        foot = -6.0 - 0.5 * (x / 90) ** 2
        there = -4.0 - 0.5 * (x - at) ** 2
        return jnp.sum(jnp.logaddexp(jnp.logaddexp(-0.5 * x**2, foot - 5), there - 5))

    problem, _ = of(on_a_foot)
    known = survey_posterior(problem, 0, 1.0, by_hand=False)
    assert known.modes is not None and known.modes.z[1, 0] == pytest.approx(79.5, abs=0.1)
    # it explains what is within its sds, and not the foot that both stand on
    x = np.linspace(-600, 600, 1_200_001)
    density = np.exp(np.asarray(jax.vmap(on_a_foot)(x[:, None]), float))
    beside = (np.abs(x) > 4) & (np.abs(x - 79.5) > 5)
    for doubt in known.doubts:
        own = beside & (x * doubt.at[0] > 0)
        truth = np.sum((x**2 * density)[own]) / np.sum(x**2 * density)
        assert doubt.share == pytest.approx(truth, abs=0.02)
    assert {float(np.sign(doubt.at[0])) for doubt in known.doubts} == {-1.0, 1.0}


def test_rays_are_taken_a_few_at_a_time(monkeypatch):
    """Of 1,100 parameters all points at once were 3 GB; what is held does not change what is found."""
    given, sizes, density = of(square, d=30), [], rays_room.density
    whole = rays(*given, np.random.default_rng(1))
    monkeypatch.setattr(rays_room, "MAX_POINT_NUMBERS", 2**14)
    monkeypatch.setattr(
        rays_room, "density", lambda *given: (sizes.append(given[-1].size), density(*given))[1]
    )
    parts = rays(*given, np.random.default_rng(1))
    assert len(sizes) > 1 and max(sizes) <= 2**14
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(one.value, other.value)
