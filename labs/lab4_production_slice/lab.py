"""Lab 4: what is asked of softmax, the norms, dropout and LayerNorm + Linear as a small library, and how they
are graded.
"""

import math
import warnings

from grader.course.spec import Arm, Case, Codegen, Exercise, Lab, Layout, Speed, Tolerance
from grader.course.symptoms import LabSymptom, Symptom

EPSILON = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}
SMALLEST = {"fp32": 2.0**-126, "fp16": 2.0**-14, "bf16": 2.0**-126}  # smallest normal number
ITEM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2}
LARGEST = {"fp32": 2.0**90, "fp16": 2.0**15, "bf16": 2.0**90}  # powers of two: see `far`
LN_EPS, RMS_EPS = 1e-5, 1e-6


# -- inputs


def far(x, nearest):
    """Return powers of two from `nearest` on, up to 8 times as far from 0, by the size of x.

    Differences are so large that exp gives 0 or 1. Other numbers, multiplied by log2(e) before the maximum is
    subtracted, would lose the digits that decide.
    """
    return nearest * 2.0 ** x.abs().round().clamp(max=3.0)


def rows_of(rng, case):
    """Rows of N(0, 2); far from 0, far below it, or so narrow that eps decides, where the case says so."""
    rows, cols, values = case.params["rows"], case.params["cols"], case.params.get("values", "normal")
    x = rng.normal(rows, cols, std=2.0)
    if values == "far":  # a variance from the squares of x loses its digits
        return x + (1000.0 if case.dtype == "fp32" else 32.0)
    if values == "farther":  # a mean that is rounded to fp16 is wrong by a part of the deviation
        return x + 512.0
    if values == "below":  # exp of any of them is 0 in fp32; every second row is far above its neighbours
        x[::2] = far(x[::2], -1024.0)
        return x
    if values == "far below":  # a number that stands in for -inf may not be above them
        return far(x, -32768.0)
    if values == "lowest":  # the same number at half of the columns, and less at the others
        low = 0.0 * x - LARGEST[case.dtype]
        return low.where(rng.uniform(rows, cols) > 0.5, -1.08 * LARGEST[case.dtype])
    if values == "offset":  # x * log2(e), taken before the maximum is subtracted, loses digits
        return x + 16384.0
    if values == "above":  # exp of any of them is inf
        return far(x, 16384.0)
    if values == "outlier":  # one number towers over its row, in which it stands anywhere
        return x.where(x < x.amax(dim=1, keepdim=True), 60.0)
    if values == "ascending":  # every block raises the maximum, the last as well
        return x.sort(dim=1).values
    if values == "descending":
        return x.sort(dim=1, descending=True).values
    if values == "aside":
        return x + 8.0
    if values == "large":  # the square of each leaves the range of fp16
        return 256.0 * x
    if values == "masked below":  # a block of -inf, and then values whose exp is 0
        return (x - 300.0).where(columns_of(x) >= cols - 97, x - math.inf)
    return 0.001 * x if values == "narrow" else x


def columns_of(x):
    import torch

    return torch.arange(x.shape[1], device=x.device).expand(x.shape)


def eps_of(case):
    """The argument eps, where the case does not leave it at its default."""
    return {"eps": case.params["eps"]} if "eps" in case.params else {}


def gradient_of(rng, case):
    # It leans to one side, so that the sums over a row matter.
    return rng.normal(case.params["rows"], case.params["cols"], mean=1.0)


def softmax_inputs(rng, case):
    return {"x": rows_of(rng, case)}


def softmax_backward_inputs(rng, case):
    return {"dy": gradient_of(rng, case), "y": rows_of(rng, case).softmax(dim=1)}


def softmax_both_inputs(rng, case):
    return {"x": rows_of(rng, case), "dy": gradient_of(rng, case)}


def layer_norm_inputs(rng, case):
    cols = case.params["cols"]
    x, weight = rows_of(rng, case), 1.0 + 0.5 * rng.normal(cols)
    return {"x": x, "weight": weight, "bias": rng.normal(cols), **eps_of(case)}


def layer_norm_backward_inputs(rng, case):
    weight = 1.0 + 0.5 * rng.normal(case.params["cols"])
    return {"dy": gradient_of(rng, case), "x": rows_of(rng, case), "weight": weight, **eps_of(case)}


def layer_norm_both_inputs(rng, case):
    return {**layer_norm_inputs(rng, case), "dy": gradient_of(rng, case)}


def rms_norm_inputs(rng, case):
    return {"x": rows_of(rng, case), "weight": 1.0 + 0.5 * rng.normal(case.params["cols"]), **eps_of(case)}


def rms_norm_both_inputs(rng, case):
    return {**rms_norm_inputs(rng, case), "dy": gradient_of(rng, case)}


def linear_inputs(rng, case):
    cols, outs = case.params["cols"], case.params["outs"]
    weight = rng.normal(outs, cols) / math.sqrt(cols)
    inputs = layer_norm_inputs(rng, case)
    return {
        "x": inputs["x"], "gamma": inputs["weight"], "beta": inputs["bias"], "weight": weight,
        "bias": rng.normal(outs), **eps_of(case),
    }  # fmt: skip


def linear_both_inputs(rng, case):
    # It leans to one side, so that the sums over rows matter.
    return {**linear_inputs(rng, case), "dy": rng.normal(case.params["rows"], case.params["outs"], mean=1.0)}


def dropout_inputs(rng, case):
    # No element is 0: where a result is, it was dropped. An odd seed is never a compile-time constant.
    x, seed = rng.normal(case.params["n"]), 2 * rng.whole(2**29) + 3
    if "seed" in case.params:  # the next call has the next seed
        seed = case.params["seed"] + rng.call
    return {"x": (x.abs() + 0.5).copysign(x), "p": case.params["p"], "seed": seed}


def dropout_both_inputs(rng, case):
    drawn = dropout_inputs(rng, case)
    dy = rng.normal(case.params["n"])
    shape = (case.params["rows"], -1) if "rows" in case.params else (-1,)
    x, dy = drawn.pop("x"), (dy.abs() + 0.5).copysign(dy)
    if case.params.get("values") == "half zeros":  # as behind a ReLU: there only dx shows the choice
        x = x.where(dy > 0.0, 0.0 * x)
    drawn = {"x": x.reshape(shape), "dy": dy.reshape(shape), **drawn}
    return drawn if case.params.get("training", True) else {**drawn, "training": False}


# -- references: in fp64, and in the case's dtype what PyTorch itself gives


def softmax(x):
    return (x.softmax(dim=1),)


def softmax_backward(dy, y):
    return (y * (dy - (y * dy).sum(dim=1, keepdim=True)),)


def torch_softmax_backward(dy, y):
    import torch

    return (torch.ops.aten._softmax_backward_data(dy, y, 1, dy.dtype),)


def with_gradients(function, *tensors):
    """function of all tensors but the last, and its gradients for the last as dy."""
    import torch

    *values, dy = tensors
    with torch.enable_grad(), warnings.catch_warnings():
        # On a GPU autograd computes in a thread of its own. Where a matrix product is the first thing done
        # there, torch sets up what is missing and warns, through the thread that waits: this one.
        warnings.filterwarnings("ignore", message="Attempting to run cuBLAS, but there was no current CUDA")
        leaves = [value.detach().requires_grad_() for value in values]
        y = function(*leaves)
        return y.detach(), *torch.autograd.grad(y, leaves, dy)


def softmax_both(x, dy):
    return with_gradients(lambda leaf: leaf.softmax(dim=1), x, dy)


def layer_norm(x, weight, bias, eps=LN_EPS):
    import torch

    return (torch.nn.functional.layer_norm(x, weight.shape, weight, bias, eps),)


def layer_norm_both(x, weight, bias, dy, eps=LN_EPS):
    return with_gradients(lambda *leaves: layer_norm(*leaves, eps)[0], x, weight, bias, dy)


def layer_norm_backward(dy, x, weight, eps=LN_EPS):
    return layer_norm_both(x, weight, weight, dy, eps)[1:]  # whatever the bias, its gradient is the same


def rms_norm(x, weight, eps=RMS_EPS):
    import torch

    return (torch.nn.functional.rms_norm(x, weight.shape, weight, eps),)


def rms_norm_both(x, weight, dy, eps=RMS_EPS):
    return with_gradients(lambda *leaves: rms_norm(*leaves, eps)[0], x, weight, dy)


def rms_norm_backward(dy, x, weight, eps=RMS_EPS):
    return rms_norm_both(x, weight, dy, eps)[1:]


def layer_norm_linear(x, gamma, beta, weight, bias, eps=LN_EPS):
    import torch

    return (torch.nn.functional.linear(layer_norm(x, gamma, beta, eps)[0], weight, bias),)


def layer_norm_linear_both(x, gamma, beta, weight, bias, dy, eps=LN_EPS):
    return with_gradients(
        lambda *leaves: layer_norm_linear(*leaves, eps)[0], x, gamma, beta, weight, bias, dy
    )


def dropout(x, p, seed):
    import torch

    return (torch.nn.functional.dropout(x, p),)


def dropout_both(x, dy, p, seed, training=True):
    return with_gradients(lambda leaf: dropout(leaf, p if training else 0.0, seed)[0], x, dy)


# -- the size of one acceptable error


def softmax_unit(case, inputs, reference):
    return (softmax_error(case, inputs["x"], reference[0]),)


def softmax_error(case, x, y):
    """One rounding to the dtype, and fp32 errors of exp, which grow with the distance from the maximum."""
    distance = (x.amax(dim=1, keepdim=True) - x).clamp(max=200.0)
    fp32 = 8.0 * EPSILON["fp32"] * (1.0 + distance) * y
    return rounding(case, y) + fp32 + 4.0 * SMALLEST["fp32"]


def softmax_backward_unit(case, inputs, reference):
    return (softmax_gradient_error(case, inputs["dy"], inputs["y"], reference[0], 0.0),)


def softmax_gradient_error(case, dy, y, dx, y_error):
    size = y * (dy.abs() + (y * dy.abs()).sum(dim=1, keepdim=True))
    return rounding(case, dx) + (8.0 * EPSILON["fp32"] + y_error) * size + 4.0 * SMALLEST["fp32"]


def softmax_both_units(case, inputs, reference):
    y, dx = reference
    error = softmax_error(case, inputs["x"], y)
    relative = error / y.clamp(min=SMALLEST[case.dtype])  # backward starts from the rounded y
    return error, softmax_gradient_error(case, inputs["dy"], y, dx, relative)


def rounding(case, value):
    return EPSILON[case.dtype] * value.abs().clamp(min=SMALLEST[case.dtype])


def parts(x, centred, eps):
    """Normalised rows, 1 / deviation, and the error of a normalised row in units of fp32."""
    mean = x.mean(dim=1, keepdim=True) if centred else 0.0 * x[:, :1]
    rstd = ((x - mean).square().mean(dim=1, keepdim=True) + eps).rsqrt()
    n = (x - mean) * rstd
    # The last term is the rounding of the mean, and all there is where n is 0.
    return n, rstd, n.abs() + mean.abs() * rstd + 0.25 * n.square().mean(dim=1, keepdim=True).sqrt()


def norm_unit(centred, default):
    def unit(case, inputs, reference):
        _, _, error = parts(inputs["x"], centred, inputs.get("eps", default))
        size = error * inputs["weight"].abs() + (inputs["bias"].abs() if centred else 0.0)
        return (rounding(case, reference[0]) + 8.0 * EPSILON["fp32"] * size,)

    return unit


def error_of_means(case, inputs, reference):
    """What all elements of a normalised row are off together: two roundings of its mean."""
    mean = inputs["x"].mean(dim=1, keepdim=True)
    _, rstd, _ = parts(inputs["x"], 1, inputs.get("eps", LN_EPS))
    return (2.0 * EPSILON["fp32"] * mean.abs() * rstd * inputs["weight"].abs(),)


def norm_backward_units(centred, default):
    def units(case, inputs, reference):
        dy, g = inputs["dy"], inputs["dy"] * inputs["weight"]
        n, rstd, error = parts(inputs["x"], centred, inputs.get("eps", default))
        # Of the terms, of the sums over the row, and of the normalised rows in both.
        sums = g.abs().mean(dim=1, keepdim=True) + (1.0 + error) * (g.abs() * error).mean(dim=1, keepdim=True)
        relative = 1.0 + (error - n.abs()).amax(dim=1, keepdim=True)
        size = rstd * (g.abs() + sums) * relative
        over_rows = ((dy.abs() * error).sum(dim=0), dy.abs().sum(dim=0))[: 1 + centred]
        sizes = (size, *over_rows)
        return tuple(
            rounding(case, value) + 8.0 * EPSILON["fp32"] * size
            for value, size in zip(reference, sizes, strict=True)
        )

    return units


def norm_both_units(centred, eps):
    def units(case, inputs, reference):
        forward = norm_unit(centred, eps)(case, inputs, reference[:1])
        return *forward, *norm_backward_units(centred, eps)(case, inputs, reference[1:])

    return units


def fp32_sum(terms):
    """The error of an fp32 sum of so many terms, in units of their root of squares."""
    return (8.0 + 0.5 * math.sqrt(terms)) * EPSILON["fp32"]


def linear_unit(case, inputs, reference):
    """Of gamma * weight, or of the normalised row, rounded to the dtype; and of sums in fp32, with the mean
    of the row still in them.
    """
    gamma, beta, weight, bias = (inputs[name] for name in ("gamma", "beta", "weight", "bias"))
    n, _, error = parts(inputs["x"], 1, inputs.get("eps", LN_EPS))
    scaled = (gamma * weight).square().T
    rounded = (n.square() @ scaled + (n * gamma + beta).square() @ weight.square().T).sqrt()
    off = (error - n.abs()).amax(dim=1, keepdim=True) * (gamma * weight).sum(dim=1).abs()
    fp32 = fp32_sum(len(gamma)) * ((error.square() @ scaled).sqrt() + off)
    shift = 8.0 * EPSILON["fp32"] * ((beta * weight).norm(dim=1) + bias.abs())
    return (rounding(case, reference[0]) + EPSILON[case.dtype] * rounded + fp32 + shift,)


def linear_both_units(case, inputs, reference):
    gamma, beta, weight, dy = (inputs[name] for name in ("gamma", "beta", "weight", "dy"))
    n, rstd, error = parts(inputs["x"], 1, inputs.get("eps", LN_EPS))
    epsilon, rows, outs = EPSILON[case.dtype], *dy.shape
    dz, scaled = dy @ weight, gamma * weight
    # What each sum has of rounding to the dtype, and of fp32: as random as the terms.
    in_g = (epsilon + fp32_sum(outs)) * (dy.square() @ scaled.square()).sqrt()
    in_g += (epsilon + 8.0 * EPSILON["fp32"]) * (dz * gamma).abs()
    in_row = in_g.square().mean(dim=1, keepdim=True).sqrt() + 8.0 * EPSILON["fp32"] * dz.abs().mean()
    in_dx = rstd * (in_g + (1.0 + n.abs()) * in_row * (1.0 + (error - n.abs()).amax(dim=1, keepdim=True)))
    power = dy.square().T
    in_products = epsilon * (power @ n.square()).sqrt() + fp32_sum(rows) * (power @ error.square()).sqrt()
    in_dgamma = (weight.square() * in_products.square()).sum(dim=0).sqrt() + fp32_sum(outs + rows) * (
        (dz * error).norm(dim=0)
    )
    in_dgamma += epsilon * (dz * n).norm(dim=0)
    in_sums = fp32_sum(rows) * dy.norm(dim=0)
    in_dbeta = (epsilon + fp32_sum(outs + rows)) * dz.norm(dim=0) + (weight.abs().T @ in_sums)
    in_dweight = gamma.abs() * in_products + beta.abs() * in_sums[:, None]
    in_dweight += epsilon * (power @ (n * gamma + beta).square()).sqrt()
    errors = in_dx, in_dgamma, in_dbeta, in_dweight, in_sums
    of_gradients = (rounding(case, value) + error for value, error in zip(reference[1:], errors, strict=True))
    return *linear_unit(case, inputs, reference[:1]), *of_gradients


def dropout_unit(case, inputs, reference):
    return tuple(rounding(case, value) for value in reference)


class Mistake(LabSymptom):
    """Symptoms that only these exercises recognise, named after the mistake."""

    EPS_OUTSIDE = "eps outside"
    NO_EPS = "no eps"
    EPS_IGNORED = "eps ignored"
    ONE_COLUMN = "one column"
    VARIANCE_OVER_N_MINUS_1 = "variance over n - 1"
    DIVIDED_BY_THE_BLOCK = "divided by the block"
    MASKED_LANES = "masked lanes"
    CENTRING = "centring"
    WEIGHT_BY_ROW = "weight by row"
    NO_WEIGHT = "no weight"
    NO_BIAS = "no bias"
    MEAN_TERMS_DROPPED = "mean terms dropped"
    NO_WEIGHT_IN_DX = "no weight in dx"
    ROWS_NOT_SUMMED = "rows not summed"
    SUMS_NOT_SET = "sums not set"
    DWEIGHT_WITHOUT_N = "dweight without n"
    NOT_SCALED = "not scaled"
    SCALED_BY_1_OVER_P = "scaled by 1/p"
    MASK_INVERTED = "mask inverted"
    KEEP_RATE = "keep rate"
    CHOICE_OF_RESULTS = "choice of results"
    IN_EVALUATION = "in evaluation"
    EDGE_OF_P = "edge of p"
    MASK_REPEATS = "mask repeats"
    SEED_IGNORED = "seed ignored"
    SEED_MOVES = "seed moves"
    MASK_NOT_REPLAYED = "mask not replayed"
    SCALED_GRADIENT = "scaled gradient"
    DY_IN_MEMORY_ORDER = "dy in memory order"
    MEAN_LEFT_IN = "mean left in"
    MEAN_NOT_SCALED = "mean not scaled"
    MEAN_OF_OTHER_COLUMNS = "mean of other columns"
    SHIFT_SCALED = "shift scaled"
    ANOTHER_TILE = "another tile"
    WEIGHT_TRANSPOSED = "weight transposed"
    NO_GAMMA = "no gamma"
    DWEIGHT_OF_OTHER_ROWS = "dweight of other rows"
    NO_BETA = "no beta"


# -- dropout: what must hold whatever the random stream

OF_RANDOM_NUMBERS = (Mistake.MASK_REPEATS, Mistake.SEED_IGNORED, Mistake.SEED_MOVES)


def scale_of(p):
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def chance_of(case):
    """The probability to drop: in evaluation nothing is."""
    return case.params["p"] if case.params.get("training", True) else 0.0


def follow_forward(case, inputs, outputs):
    return _follow(case, (inputs["x"],), outputs)


def follow_both(case, inputs, outputs):
    return _follow(case, (inputs["x"], inputs["dy"]), outputs)


def kept_in(case, outputs):
    """Which elements were kept: each has a result that is not 0, or, where x is 0, a gradient."""
    kept = outputs[0] != 0.0
    return kept | (outputs[-1] != 0.0) if "values" in case.params else kept


def _follow(case, tensors, outputs):
    """Results for the choice that the outputs show."""
    p, kept = chance_of(case), kept_in(case, outputs)
    if p in (0.0, 1.0):
        kept = kept * 0 + (p == 0.0) > 0
    return tuple((x * scale_of(p)).where(kept, 0.0 * x) for x in tensors)


def symptom_of_choice(case, outputs, earlier):
    """A property that independent choices with probability 1 - p to keep would have, and these lack."""
    p, kept = chance_of(case), kept_in(case, outputs)
    n = kept.numel()
    if p in (0.0, 1.0) or n < 1024:
        return None
    kept = kept.flatten()
    if "values" in case.params and not (kept & (outputs[0].flatten() == 0.0)).any():
        return Mistake.CHOICE_OF_RESULTS
    # Before the share: numbers that several elements have let it vary more, too.
    if repeats_at_some_distance(kept):
        return Mistake.MASK_REPEATS
    # Counted, not averaged: of 2^27 elements a mean would want a gigabyte beside them.
    share, spread = int(kept.count_nonzero()) / n, math.sqrt(p * (1.0 - p) / n)
    if abs(share - (1.0 - p)) > 6.0 * spread + 2.0**-16:
        return Mistake.MASK_INVERTED if abs(share - p) < 6.0 * spread + 2.0**-16 else Mistake.KEEP_RATE
    agree, limit = p * p + (1.0 - p) ** 2, 6.0 * math.sqrt(0.25 / n)
    for period in (1, *(2**k for k in range(1, 21))):
        if 2 * period <= n:
            same = int((kept[period:] == kept[:-period]).count_nonzero()) / (n - period)
            if abs(same - agree) > limit * math.sqrt(n / (n - period)):
                return Mistake.MASK_REPEATS
    if earlier and earlier[0].shape == kept.shape:
        before = kept_in(case, earlier)
        same = int((before == kept).count_nonzero()) / n
        if abs(same - agree) > limit:
            return Mistake.SEED_IGNORED
        if "seed" in case.params and is_moved(before, kept):
            return Mistake.SEED_MOVES
    return None


def is_moved(before, kept):
    """Whether two choices agree at some distance, or with neighbours exchanged, more than by chance."""
    import torch

    first, second = (one[: 2**16].double().cpu() for one in (before, kept))
    n, spread = len(first), float(first.std() * second.std())
    first, second = first - first.mean(), second - second.mean()
    spectra = torch.fft.rfft(first, n=2**17), torch.fft.rfft(second, n=2**17)
    moved = torch.fft.irfft(spectra[0].conj() * spectra[1], n=2**17).abs().max()
    # The seed may be combined with the offset bit by bit: neighbours change places, or groups of them.
    groups = [first.reshape(-1, 2, 2**power).flip(1).flatten() for power in range(8)]
    agreement = [moved, *((one * second).sum().abs() for one in groups)]
    return any(float(one) > 8.0 * math.sqrt(n) * spread for one in agreement)


def repeats_at_some_distance(kept):
    """Whether elements agree with those a fixed distance before them, more often than by chance."""
    import torch

    first = kept[: 2**16].float().cpu()  # on a GPU, cuFFT takes half a second to load
    n, centred = len(first), first - first.mean()
    # Of each distance; those before the first element are taken from the end.
    agreement = torch.fft.irfft(torch.fft.rfft(centred).abs().square(), n=n)[1 : n // 2 + 1]
    # 8 standard deviations: there are many distances, and many submissions.
    return bool((agreement.abs() > 8.0 * math.sqrt(n) * centred.square().mean() + 1e-6).any())


def symptom_of_dropout(case, inputs, expected, got):
    p, x = chance_of(case), inputs["x"].double()
    if p in (0.0, 1.0) or got.shape != x.shape or not got.isfinite().all():
        if p != case.params["p"]:
            return Mistake.IN_EVALUATION
        return Mistake.EDGE_OF_P if p in (0.0, 1.0) else None
    kept = got != 0.0
    for scale, symptom in ((1.0, Mistake.NOT_SCALED), (1.0 / p, Mistake.SCALED_BY_1_OVER_P)):
        if kept.any() and abs(scale - scale_of(p)) > 0.05 and _same(got[kept], scale * x[kept]):
            return symptom
    return None


def symptom_of_replay(case, inputs, expected, got):
    """For y and dx: symptom_of_dropout for y; and for dx, whether it is another choice than y's."""
    if dropped := symptom_of_dropout(case, inputs, expected, got):
        return dropped
    dy, scale, kept = inputs["dy"].double(), scale_of(chance_of(case)), got != 0.0
    for factor, symptom in (
        (scale, Mistake.MASK_NOT_REPLAYED),
        (1.0, Mistake.SCALED_GRADIENT),
        (scale**2, Mistake.SCALED_GRADIENT),
    ):
        if kept.any() and _same(got[kept], factor * dy[kept]):
            # Where dy lies row by row, the same mistake is another choice; those cases come first.
            return Mistake.DY_IN_MEMORY_ORDER if case.layouts.get("dy") else symptom
    return None


def _same(one, other):
    return bool((one - other).norm() <= 2e-2 * other.norm())


# -- mistakes with a norm


def symptom_of_norm(centred, default):
    def symptom_of(case, inputs, expected, got):
        x, weight, eps = inputs["x"].double(), inputs["weight"].double(), inputs.get("eps", default)
        bias = inputs["bias"].double() if centred else 0.0
        rows, cols = x.shape
        if not got.isfinite().all():
            # The variance of one column is 0: divided by n - 1 it is 0 / 0, and without eps its root is 0.
            return Mistake.ONE_COLUMN if centred and cols == 1 else None
        mean, power = x.mean(dim=1, keepdim=True), x.square().mean(dim=1, keepdim=True)
        n, rstd, _ = parts(x, centred, eps)
        d, variance = n / rstd, n.square().mean(dim=1, keepdim=True) / rstd.square()

        def result(deviations, wrong_variance):
            return deviations * (wrong_variance + eps).rsqrt() * weight + bias

        others = [
            (Mistake.EPS_OUTSIDE, d / (variance.sqrt() + eps) * weight + bias),
            (Mistake.NO_EPS, d / variance.sqrt() * weight + bias),
            *((Mistake.EPS_IGNORED, d * (variance + one).rsqrt() * weight + bias) for one in other_eps(eps)),
            (Mistake.NO_WEIGHT, n + bias),
            (Mistake.NO_BIAS, n * weight if centred else expected),
        ]
        if centred:
            others += [(Mistake.CENTRING, result(x, power)), (Mistake.CENTRING, result(x, variance))]
        else:
            others += [(Mistake.CENTRING, result(x - mean, (power - mean.square()).clamp(min=0.0)))]
        # Columns of all tiles of a row, whatever the width of a tile.
        for lanes in {-(-cols // 2**k) * 2**k for k in range(18)} - {cols}:
            share = cols / lanes
            others.append((Mistake.DIVIDED_BY_THE_BLOCK, result(d, share * variance)))
            if centred:
                off = x - share * mean
                both = share * off.square().mean(dim=1, keepdim=True)
                others.append((Mistake.DIVIDED_BY_THE_BLOCK, result(off, both)))
                others.append(
                    (Mistake.MASKED_LANES, result(d, variance + (1.0 / share - 1.0) * mean.square()))
                )
        if cols > 1:
            others.append((Mistake.VARIANCE_OVER_N_MINUS_1, result(d, variance * cols / (cols - 1))))
        if rows <= cols:
            by_row = inputs["bias"].double()[:rows, None] if centred else 0.0
            others.append((Mistake.WEIGHT_BY_ROW, n * weight[:rows, None] + by_row))
        near = [(got - other).norm().nan_to_num(nan=math.inf) for _, other in others]
        best = near.index(min(near))
        return others[best][0] if near[best] < 0.1 * (got - expected).norm() else None

    return symptom_of


def other_eps(eps):
    """Values that are written into a kernel in place of the argument."""
    return [one for one in (LN_EPS, RMS_EPS) if one != eps]


def symptom_of_norm_backward(centred, default):
    def symptom_of(case, inputs, expected, got):
        dy, x, weight = (inputs[name].double() for name in ("dy", "x", "weight"))
        eps = inputs.get("eps", default)
        if not got.isfinite().all():
            return Mistake.SUMS_NOT_SET if got.dim() == 1 else None  # dx was looked at first, and is finite
        g, (n, rstd, _) = dy * weight, parts(x, centred, eps)
        mean_g = g.mean(dim=1, keepdim=True) * centred
        mean_gn = (g * n).mean(dim=1, keepdim=True)
        mean_dy = dy.mean(dim=1, keepdim=True) * centred
        plain_n, plain_rstd, _ = parts(x, centred, 0.0)
        plain_gn = (g * plain_n).mean(dim=1, keepdim=True)
        others = {
            Mistake.NO_EPS: (plain_rstd * (g - mean_g - plain_n * plain_gn), (dy * plain_n).sum(dim=0)),
            Mistake.MEAN_TERMS_DROPPED: (rstd * g, rstd * (g - n * mean_gn), rstd * (g - mean_g)),
            Mistake.NO_WEIGHT_IN_DX: (rstd * (dy - mean_dy - n * (dy * n).mean(dim=1, keepdim=True)),),
            Mistake.ROWS_NOT_SUMMED: ((dy * n)[0], (dy * n)[-1], dy[0], dy[-1]),
            Mistake.DWEIGHT_WITHOUT_N: (dy.sum(dim=0), (dy * x).sum(dim=0)),
        }
        for other in other_eps(eps):
            n, rstd, _ = parts(x, centred, other)
            mean_gn = (g * n).mean(dim=1, keepdim=True)
            both = rstd * (g - mean_g - n * mean_gn), (dy * n).sum(dim=0)
            others[Mistake.EPS_IGNORED] = (*others.get(Mistake.EPS_IGNORED, ()), *both)
        if "eps" in inputs:  # so large that a small one is none
            others = {Mistake.EPS_IGNORED: others.pop(Mistake.EPS_IGNORED), **others}
        wrong = (got - expected).norm()
        for symptom, candidates in others.items():
            for other in candidates:
                if other.shape == got.shape and (got - other).norm() < 0.1 * wrong:
                    return symptom
        # Some rows are in the sum and others are not.
        if got.dim() == 1 and x.shape[0] > 1 and wrong > 0.05 * expected.norm():
            return Mistake.ROWS_NOT_SUMMED
        return None

    return symptom_of


def symptom_of_norm_both(centred, eps):
    forward, backward = symptom_of_norm(centred, eps), symptom_of_norm_backward(centred, eps)

    def symptom_of(case, inputs, expected, got):
        if got.dim() == 2:
            return forward(case, inputs, expected, got) or backward(case, inputs, expected, got)
        if _same(got, inputs["dy"].double().sum(dim=0)) and not _same(got, expected):
            return Symptom.GRADIENT  # dbias where dweight should be
        return backward(case, inputs, expected, got)

    return symptom_of


def symptom_of_linear(case, inputs, expected, got):
    import torch

    if not got.isfinite().all():
        return None
    x, gamma, beta, weight, bias = (
        inputs[name].double() for name in ("x", "gamma", "beta", "weight", "bias")
    )
    mean, cols, eps = x.mean(dim=1, keepdim=True), x.shape[1], inputs.get("eps", LN_EPS)
    n, rstd, _ = parts(x, 1, eps)
    variance = (x - mean).square().mean(dim=1, keepdim=True)
    s = gamma * weight
    product, total, shift = x @ s.T, s.sum(dim=1), weight @ beta + bias
    others = [
        (Mistake.MEAN_LEFT_IN, rstd * product + shift),
        (Mistake.MEAN_NOT_SCALED, rstd * product - mean * total + shift),
        (Mistake.NO_BETA, expected - weight @ beta),
        (Mistake.NO_BIAS, expected - bias),
        (Mistake.SHIFT_SCALED, rstd * (product - mean * total + shift)),
        (Mistake.NO_GAMMA, n @ weight.T + shift),
        (Mistake.WEIGHT_TRANSPOSED, rstd * (x @ s.reshape(s.shape[::-1]) - mean * total) + shift),
        (Mistake.MEAN_OF_OTHER_COLUMNS, rstd * product - rstd * mean * weight.sum(dim=1) + shift),
        (Mistake.EPS_OUTSIDE, (x - mean) / (variance.sqrt() + eps) @ s.T + shift),
        *(
            (Mistake.EPS_IGNORED, (x - mean) * (variance + one).rsqrt() @ s.T + shift)
            for one in other_eps(eps)
        ),
        (Mistake.NO_EPS, (x - mean) / variance.sqrt() @ s.T + shift),
    ]
    if cols > 1:
        wrong = (variance * cols / (cols - 1) + eps).rsqrt()
        others.append((Mistake.VARIANCE_OVER_N_MINUS_1, (x - mean) * wrong @ s.T + shift))
    for tile in (16, 32, 64, 128):
        rows, outs = (torch.arange(side, device=x.device) % tile for side in got.shape)
        if len(rows) > tile:
            others.append((Mistake.ANOTHER_TILE, rstd[rows] * (product - mean[rows] * total) + shift))
        if len(outs) > tile:
            others.append((Mistake.ANOTHER_TILE, rstd * (product - mean * total[outs]) + shift[outs]))
    near = [(got - other).norm().nan_to_num(nan=math.inf) for _, other in others]
    best = near.index(min(near))
    return others[best][0] if near[best] < 0.1 * (got - expected).norm() else None


def symptom_of_linear_both(case, inputs, expected, got):
    x, gamma, weight, dy = (inputs[name].double() for name in ("x", "gamma", "weight", "dy"))
    if got.shape == dy.shape:
        return symptom_of_linear(case, inputs, expected, got)
    dz, (n, _, _) = dy @ weight, parts(x, 1, inputs.get("eps", LN_EPS))
    if got.shape == weight.shape:
        others = dy.T @ (n * gamma), dy.T @ n, dy.T @ x, dy.T @ (x * gamma)
        return Mistake.DWEIGHT_OF_OTHER_ROWS if any(_same(got, other) for other in others) else None
    as_norm = {"dy": dz, "x": x, "weight": gamma, "eps": inputs.get("eps", LN_EPS)}
    if got.dim() == 1 and got.shape == gamma.shape:
        sums = dz.sum(dim=0), (dz * n).sum(dim=0)
        if any(_same(got, one) for one in sums) and not _same(got, expected):
            return Symptom.GRADIENT
    return symptom_of_norm_backward(1, LN_EPS)(case, as_norm, expected, got)


# -- baselines


def copy(x, weight=None, bias=None, *, p=None, seed=None, out):
    out.copy_(x)


def torch_softmax(x, *, out):
    import torch

    torch.softmax(x, dim=1, out=out)


def add(dy, y, *, out):
    import torch

    torch.add(dy, y, out=out)


def add_rows(dy, x, weight, *, dx, dweight, dbias=None):
    import torch

    torch.add(dy, x, out=dx)


def norm_then_linear(x, gamma, beta, weight, bias, *, out):
    import torch

    normalised = torch.nn.functional.layer_norm(x, gamma.shape, gamma, beta, LN_EPS)
    torch.addmm(bias, normalised, weight.t(), out=out)


# -- cases


def shapes(rows, cols, **more):
    return {"rows": rows, "cols": cols, **more}


SMALL = ((1, 1), (3, 2), (5, 127), (4, 129), (7, 1001))
LONG = ((3, 16385), (2, 40000))
PADDED = {"x": Layout(pad=24), "out": Layout(pad=7)}
FAR = Layout(far=True)
# Of a row whose largest values are all the same: one share, which may have few digits, or be seen before.
ONE_VALUE = ("an earlier result", "fewer digits")
EVEN = ((3, 48), (2, 1536), (1, 24576))  # multiples of 16, 512 and 8192 that twice as much does not divide
# A prime number of rows, more than there usually are programs; whole blocks alone, in more than one row.
MANY, WHOLE = (149, 3), (3, 4096)
SIX_BLOCKS = (3, 2600)  # of 512 columns, three of 1024: a count of warps that follows it is no power of two
# More rows than are usual in a group, or groups, and no multiple of any such number.
PRIME = 37
PADDED_BACKWARD = {"dy": Layout(pad=24), "x": Layout(pad=8), "y": Layout(pad=8)} | {
    name: Layout(pad=7) for name in ("dx", "out")
}


def forward_cases(*values):
    return (
        *(Case(shapes(r, c), "fp32") for r, c in SMALL),
        *(Case(shapes(r, c), "fp16") for r, c in SMALL[2:]),
        *(Case(shapes(r, c), "bf16") for r, c in SMALL),
        # As many lanes are past the end of a block as there are columns.
        *(Case(shapes(7, 1030, values=value), dtype) for value in values for dtype in ("fp32", "fp16")),
        *(Case(shapes(7, 1001), dtype, PADDED) for dtype in ("fp32", "bf16")),
        Case(shapes(5, 127), "fp16", {"x": Layout(pad=9)}, allocates=True),
        *(Case(shapes(*shape), dtype) for shape, dtype in ((MANY, "fp32"), (WHOLE, "fp16"))),
        Case(shapes(3, 257), "fp16", {"x": FAR, "out": FAR}),
        *(Case(shapes(*shape), dtype) for shape, dtype in zip(EVEN, ("fp16", "fp32", "fp32"), strict=True)),
        Case(shapes(*SIX_BLOCKS), "fp32", {"out": Layout(pad=15)}),
        Case(shapes(3, 1009), "fp16", {"out": FAR}),
        # Long rows last: their kernels take seconds to compile, which happens beside the other cases.
        *(Case(shapes(r, c), "fp32") for r, c in LONG),
        Case(shapes(*LONG[0]), "fp16"),
        *(Case(shapes(r, c), "bf16") for r, c in (*LONG, (1, 131072), (1000, 3001))),
    )


def backward_cases(padded, *values, longest="fp32"):
    layouts = {name: PADDED_BACKWARD[name] for name in padded}
    return (
        *(Case(shapes(r, c), "fp32") for r, c in (*SMALL[1:], LONG[0])),
        *(Case(shapes(r, c), "fp16") for r, c in SMALL[2:]),
        *(Case(shapes(r, c), "bf16") for r, c in (*SMALL[2:], *LONG, (1000, 3001), (3, 131072))),
        *(Case(shapes(7, 1009, values=value), "fp32") for value in values),
        *(Case(shapes(7, 1001), dtype, layouts) for dtype in ("fp32", "bf16")),
        Case(shapes(5, 127), "fp16", dict.fromkeys(padded[:2], Layout(pad=9)), allocates=True),
        Case(shapes(*WHOLE), "fp16"),
        Case(shapes(3, 257), "fp16", dict.fromkeys(padded, FAR)),
        Case(shapes(16, 48), "fp32"),
        Case(shapes(*EVEN[1]), "bf16"),
        Case(shapes(*EVEN[2]), longest),
        # Each tensor has another layout than those beside it.
        Case(shapes(*SIX_BLOCKS), "fp32", {padded[1]: Layout(pad=15)}),
        Case(shapes(3, 257), "fp16", {padded[2]: FAR}),
    )


def with_eps(*values):
    """Cases with these eps; where it is 0, of rows so narrow that the usual one would show."""
    return tuple(
        Case(shapes(5, 257, eps=eps) | ({} if eps else {"values": "narrow"}), "fp32") for eps in values
    )


TRANSPOSED = {"dy": Layout(transposed=True)}  # as autograd hands it in behind a transpose
EXPANDED = {"dy": Layout(expanded=True)}  # behind a sum
SPREAD = {"dy": Layout(step=2)}  # behind a choice of every second column
BOTH_CASES = (
    *(Case(shapes(r, c), "fp32") for r, c in ((4, 129), (7, 1001), (1, 16385))),
    *(Case(shapes(6, 130), "fp32", layouts) for layouts in (TRANSPOSED, EXPANDED, {"dy": Layout(pad=9)})),
    Case(shapes(5, 144), "fp16", {"x": Layout(pad=8), **SPREAD}),
    *(Case(shapes(r, c), "fp16") for r, c in ((5, 127), (7, 1001))),
    *(Case(shapes(r, c), "bf16") for r, c in ((29, 1001), (300, 20011))),
)
LOWEST = tuple(
    Case(shapes(3, 1009, values="lowest"), dtype, also_right=ONE_VALUE) for dtype in ("fp32", "fp16", "bf16")
)
SOFTMAX_CASES = (
    *forward_cases(),
    Case(shapes(3, 20011, values="masked below"), "fp16"),
    *(Case(shapes(7, 1009, values="below"), dtype, also_right=ONE_VALUE) for dtype in ("fp32", "fp16")),
    # A program may have several of these rows, each of which has a maximum of its own.
    Case(shapes(37, 100, values="below"), "fp32", also_right=ONE_VALUE),
    *(
        Case(shapes(3, 1009, values=values), "fp32", also_right=ONE_VALUE)
        for values in ("far below", "above")
    ),
    *(Case(shapes(3, 1009, values=values), "fp32") for values in ("outlier", "offset")),
    *(Case(shapes(3, 20011, values=values), "fp32") for values in ("ascending", "descending")),
    *LOWEST,
)
SOFTMAX_BACKWARD = (*backward_cases(("dy", "y", "out")), Case(shapes(*MANY), "fp32"))
SOFTMAX_BOTH = (*BOTH_CASES, Case(shapes(3, 20011, values="masked below"), "fp16"), *LOWEST[:2])
# The last: rows in tiles of 16, and these in groups, leave some over.
MANY_ROWS = (Case(shapes(PRIME, 3), "fp32"), Case(shapes(301, 130), "bf16"), Case(shapes(600, 2), "fp32"))
NORM_FORWARD = (
    *forward_cases("far", "narrow"),
    Case(shapes(7, 1030, values="farther"), "fp16"),
    Case(shapes(3, 1009, values="outlier"), "fp16"),
    Case(shapes(3, 257, values="large"), "fp16"),
    *with_eps(0.0, 1.0),
)
NORM_BACKWARD = (
    *backward_cases(("dy", "x", "dx"), "narrow", "far", longest="bf16"),
    *MANY_ROWS,
    Case(shapes(3, 257, values="outlier"), "bf16"),
    *with_eps(0.0, 1.0),
)
NORM_BOTH = (
    *BOTH_CASES,
    MANY_ROWS[1],
    *with_eps(0.0, 1.0),
    Case(shapes(3, 70), "fp32", separate=True),
)
TIMED = tuple(Case(shapes(2**27 // cols, cols), "bf16") for cols in (4096, 16384))


def choices(n, p):
    return {"n": n, "p": p}


DROPOUT_CASES = (
    *(Case(choices(n, 0.5), "fp32") for n in (1, 63, 40003)),
    # So many that a chance in steps of 1/256 shows.
    Case(choices(2**18, 0.01), "fp32"),
    *(Case(choices(30001, 0.1), dtype) for dtype in ("fp16", "bf16")),
    *(Case(choices(30001, 0.75), dtype) for dtype in ("fp32", "fp16", "bf16")),
    *(Case(choices(4099, 0.0), dtype, also_right=("a copy of x",)) for dtype in ("fp32", "bf16")),
    Case(choices(4099, 1.0), "fp32", also_right=("zeros", "an earlier result", "fewer digits")),
    # Long enough for a random number of 16 bits to be 0.
    Case(choices(2**18, 0.0), "fp32", also_right=("a copy of x",)),
    Case({**choices(2**14, 0.5), "seed": 40}, "fp32", also_in="fp16"),
    Case(choices(4099, 0.5), "fp16", allocates=True),
    Case(choices(2**24 + 5, 0.3), "bf16"),
    *(Case(choices(n, 0.5), "fp16") for n in (48, 1552)),
)
DROPOUT_BOTH = (
    *(Case(choices(30001, p), "fp32") for p in (0.5, 0.1)),
    *(
        Case({**choices(40 * 50, 0.5), "rows": 40}, "fp32", layouts)
        for layouts in (TRANSPOSED, EXPANDED, SPREAD)
    ),
    Case(choices(30001, 0.75), "fp16"),
    Case(choices(30001, 0.3), "bf16"),
    Case(choices(4099, 1.0), "fp32", also_right=("zeros", "an earlier result", "fewer digits")),
    Case({**choices(4099, 0.5), "training": False}, "fp32", identity=True),
    Case({**choices(4099, 0.5), "values": "half zeros"}, "fp32"),
)


def linears(rows, cols, outs, **more):
    return {"rows": rows, "cols": cols, "outs": outs, **more}


LINEAR_CASES = (
    *(Case(linears(*s), "fp32") for s in ((1, 1, 1), (3, 2, 5), (5, 127, 33), (70, 129, 40), (3, 8201, 7))),
    *(Case(linears(*s), "fp16") for s in ((5, 127, 33), (7, 1001, 65), (130, 72, 136))),
    *(Case(linears(*s), "bf16") for s in ((5, 127, 33), (129, 4096, 1000), (1000, 3001, 257))),
    Case(linears(300, 40000, 8), "bf16"),
    Case(linears(37, 136, 70, values="far"), "fp16"),
    *(Case(linears(37, 129, 70, values=value), "fp32") for value in ("aside", "narrow")),
    *(
        Case(linears(70, 129, 40), dtype, {**PADDED, "weight": Layout(pad=3)})
        for dtype in ("fp32", "bf16")
    ),
    *(
        Case(linears(70, 136, 72), dtype, {name: Layout(pad=8) for name in ("x", "weight", "out")})
        for dtype in ("fp16", "bf16")
    ),
    Case(linears(9, 130, 20, eps=1.0), "fp32"),
    Case(linears(9, 130, 20, eps=0.0, values="narrow"), "fp32"),
    Case(linears(5, 127, 33), "fp16", {"x": Layout(pad=9)}, allocates=True),
    Case(linears(*WHOLE, 24), "fp16"),
    Case(linears(521, 24, 389), "fp16"),  # more rows of tiles than a group has, and no multiple of it
    Case(linears(3, 136, 3), "fp16", {"x": FAR, "weight": FAR, "out": FAR}),
    # Multiples of 16, and of no block; each tensor has another layout than those beside it.
    Case(linears(48, 80, 16), "bf16", {"weight": Layout(pad=16)}),
    Case(linears(16, 48, 80), "fp16", {"x": Layout(pad=16)}),
    Case(linears(144, 16, 48), "bf16", {"out": Layout(pad=16)}),
)  # fmt: skip
LINEAR_BOTH = (
    *(Case(linears(*s), "fp32") for s in ((4, 129, 6), (70, 127, 40), (2, 8201, 3))),
    *(
        Case(linears(9, 130, 20), "fp32", layouts)
        for layouts in (TRANSPOSED, EXPANDED, {"weight": Layout(pad=9), **SPREAD})
    ),
    Case(linears(301, 130, 3), "bf16"),
    Case(linears(4, 48, 16), "fp16", {"x": Layout(pad=8), "dy": Layout(transposed=True, pad=3)}),
    *(Case(linears(9, 130, 20, **more), "fp32") for more in ({"eps": 1.0}, {"eps": 0.0, "values": "narrow"})),
    Case(linears(3, 40, 7), "fp32", separate=True),
    *(Case(linears(*s), "fp16") for s in ((5, 127, 33), (70, 136, 72))),
    *(Case(linears(*s), "bf16") for s in ((29, 1001, 65), (1000, 1024, 520), (300, 20011, 40))),
)
LINEAR_TIMED = tuple(Case(linears(*s), "bf16") for s in ((32768, 1024, 3072), (131072, 1024, 1024)))


def linear_bytes(case):
    rows, cols, outs = (case.params[name] for name in ("rows", "cols", "outs"))
    return 2 * ((rows + outs + 2) * cols + (rows + 1) * outs)


def half_the_rows(params):
    return {**params, "rows": params["rows"] // 2}


def moved(tensors):
    return lambda case: tensors * case.params["rows"] * case.params["cols"] * ITEM_BYTES[case.dtype]


def timed(points, baseline, tensors, *peers, scale=(30, 60, 85)):
    zero_at, passing_at, full_at = scale
    return Speed(
        points=points,
        shapes=TIMED,
        baselines=(baseline,),
        peers=peers,
        zero_at=zero_at,
        passing_at=passing_at,
        full_at=full_at,
        bytes_moved=moved(tensors),
        smaller=half_the_rows,
    )


# The gradients of a norm read x and dy twice, 10 bytes for each element where the add moves 6: at most 60 %.
TWO_READS = (15, 30, 45)
COPY = Arm("copy", copy)
CODE = Codegen(Case(shapes(4096, 4096), "bf16"))

LAB = Lab(
    title="production slice",
    teaches="norms and their gradients, sums over rows, random numbers, a norm folded into a matrix product, "
    "operators for `torch.compile`",
    search_s=27.5,
    also_allowed=("torch.library.triton_op", "torch.library.wrap_triton", "triton.experimental.gluon"),
    given={
        "rows": (
            "WIDEST", "WARPS", "block_of", "on", "load", "store", "column_sums_kernel", "column_sums",
        ),
    },
    imports={
        "layer_norm_backward.py": ("layer_norm.py",),
        "rms_norm_backward.py": ("rms_norm.py",),
        "layer_norm_linear.py": ("layer_norm.py",),
        "layer_norm_linear_backward.py": ("layer_norm.py", "layer_norm_backward.py", "layer_norm_linear.py"),
    },
    exercises=(
        Exercise(
            "fused_softmax_forward", "softmax.py", 5, softmax_inputs, softmax, softmax,
            Tolerance(softmax_unit), SOFTMAX_CASES, codegen=CODE,
            speed=timed(3, COPY, 2, Arm("torch.softmax", torch_softmax)),
        ),
        Exercise(
            "fused_softmax_backward", "softmax.py", 5, softmax_backward_inputs, softmax_backward,
            torch_softmax_backward, Tolerance(softmax_backward_unit), SOFTMAX_BACKWARD,
            speed=timed(3, Arm("add", add), 3), codegen=CODE,
        ),
        Exercise(
            "fused_softmax", "softmax.py", 3, softmax_both_inputs, softmax_both, softmax_both,
            Tolerance(softmax_both_units), SOFTMAX_BOTH, ("y", "dx"), differentiable=True,
        ),
        Exercise(
            "layer_norm_forward", "layer_norm.py", 5, layer_norm_inputs, layer_norm, layer_norm,
            Tolerance(norm_unit(1, LN_EPS), shared=error_of_means), NORM_FORWARD, numbers=("eps",),
            symptom_of=symptom_of_norm(1, LN_EPS), speed=timed(4, COPY, 2), codegen=CODE,
        ),
        Exercise(
            "layer_norm_backward", "layer_norm_backward.py", 6, layer_norm_backward_inputs,
            layer_norm_backward, layer_norm_backward, Tolerance(norm_backward_units(1, LN_EPS)),
            NORM_BACKWARD, ("dx", "dweight", "dbias"), numbers=("eps",),
            symptom_of=symptom_of_norm_backward(1, LN_EPS), codegen=CODE,
            speed=timed(4, Arm("add", add_rows), 3, scale=TWO_READS),
        ),
        Exercise(
            "layer_norm", "layer_norm_backward.py", 3, layer_norm_both_inputs, layer_norm_both,
            layer_norm_both,
            Tolerance(norm_both_units(1, LN_EPS)), NORM_BOTH, ("y", "dx", "dweight", "dbias"),
            differentiable=True, numbers=("eps",), symptom_of=symptom_of_norm_both(1, LN_EPS),
        ),
        Exercise(
            "rms_norm_forward", "rms_norm.py", 4, rms_norm_inputs, rms_norm, rms_norm,
            Tolerance(norm_unit(0, RMS_EPS)), NORM_FORWARD, numbers=("eps",),
            symptom_of=symptom_of_norm(0, RMS_EPS), speed=timed(3, COPY, 2), codegen=CODE,
        ),
        Exercise(
            "rms_norm_backward", "rms_norm_backward.py", 5, layer_norm_backward_inputs, rms_norm_backward,
            rms_norm_backward, Tolerance(norm_backward_units(0, RMS_EPS)),
            NORM_BACKWARD, ("dx", "dweight"), numbers=("eps",),
            symptom_of=symptom_of_norm_backward(0, RMS_EPS),
            speed=timed(3, Arm("add", add_rows), 3, scale=TWO_READS),
            codegen=CODE,
        ),
        Exercise(
            "rms_norm", "rms_norm_backward.py", 3, rms_norm_both_inputs, rms_norm_both, rms_norm_both,
            Tolerance(norm_both_units(0, RMS_EPS)), NORM_BOTH, ("y", "dx", "dweight"), differentiable=True,
            numbers=("eps",),
            symptom_of=symptom_of_norm_both(0, RMS_EPS),
        ),
        Exercise(
            "dropout_forward", "dropout.py", 7, dropout_inputs, dropout, dropout, Tolerance(dropout_unit),
            DROPOUT_CASES, numbers=("p", "seed"), follow=follow_forward, bad_choice=symptom_of_choice,
            of_random_numbers=OF_RANDOM_NUMBERS, symptom_of=symptom_of_dropout,
            speed=Speed(
                points=5, shapes=(Case(choices(2**27, 0.5), "bf16"),), baselines=(COPY,), zero_at=25,
                passing_at=50, full_at=75, bytes_moved=lambda case: 4 * case.params["n"],
                smaller=lambda params: {**params, "n": params["n"] // 2},
            ),
            codegen=Codegen(Case(choices(2**24, 0.5), "bf16")),
        ),
        Exercise(
            "dropout", "dropout.py", 7, dropout_both_inputs, dropout_both, dropout_both,
            Tolerance(dropout_unit), DROPOUT_BOTH, ("y", "dx"), differentiable=True,
            numbers=("p", "seed", "training"), follow=follow_both, bad_choice=symptom_of_choice,
            of_random_numbers=OF_RANDOM_NUMBERS, symptom_of=symptom_of_replay,
        ),
        Exercise(
            "layer_norm_linear_forward", "layer_norm_linear.py", 8, linear_inputs, layer_norm_linear,
            layer_norm_linear, Tolerance(linear_unit), LINEAR_CASES, symptom_of=symptom_of_linear,
            numbers=("eps",),
            speed=Speed(
                points=6, shapes=LINEAR_TIMED, baselines=(Arm("LayerNorm, then cuBLAS", norm_then_linear),),
                zero_at=30, passing_at=60, full_at=85, bytes_moved=linear_bytes,
                flops=lambda case: 2 * math.prod(case.params[name] for name in ("rows", "cols", "outs")),
                smaller=half_the_rows,
            ),
            codegen=Codegen(Case(linears(4096, 1024, 1024), "bf16")),
        ),
        Exercise(
            "layer_norm_linear", "layer_norm_linear_backward.py", 8, linear_both_inputs,
            layer_norm_linear_both, layer_norm_linear_both, Tolerance(linear_both_units), LINEAR_BOTH,
            ("y", "dx", "dgamma", "dbeta", "dweight", "dbias"), differentiable=True,
            symptom_of=symptom_of_linear_both, may_call=("mm",), numbers=("eps",),
        ),
    ),
    causes={
        Symptom.NOTHING_WRITTEN: (
            1, "the result never reaches `out`: pass `out` to the kernel, and launch it",
        ),
        Symptom.TAIL_UNWRITTEN: (2, "the row is longer than one block: go on to its end, block by block"),
        Symptom.PART_UNWRITTEN: (
            2, "some columns or rows have no program: one program a row, all blocks of it",
        ),
        Symptom.ROWS_UNWRITTEN: (1, "whole rows were never written: row i starts at i times the row stride"),
        Symptom.OUT_OF_BOUNDS_WRITE: (1, "the store needs the mask of columns, and the row stride of `out`"),
        Symptom.OUT_OF_BOUNDS_READ: (
            1, "NaN from outside a row: a missing mask, rows that do not touch, or weight read by row",
        ),
        Symptom.NOT_FINITE: (
            2, "inf or NaN: subtract the maximum before exp; mask what lies past the row's end",
        ),
        Symptom.LATER_BLOCKS_WRONG: (2, "only block 0 is right: x, weight and bias need the block's columns"),
        Mistake.EPS_OUTSIDE: (
            3, "rows of small variance are wrong: 1 / sqrt(variance + eps), eps under the root",
        ),
        Symptom.ALL_ZERO: (3, "every element is 0: a sum in fp16 overflows, and x / inf is 0: sum in fp32"),
        Mistake.NO_EPS: (3, "rows of small variance are wrong: eps is missing under the root"),
        Mistake.EPS_IGNORED: (3, "another eps than the argument: a constant, or it was not handed on"),
        Mistake.ONE_COLUMN: (
            3, "the variance of one column is 0: divide by n, not by n - 1, and add eps to it",
        ),
        Mistake.VARIANCE_OVER_N_MINUS_1: (3, "a norm divides the sum of squares by n, not by n - 1"),
        Mistake.DIVIDED_BY_THE_BLOCK: (3, "the sums were divided by the width of the block, not by n_cols"),
        Mistake.MASKED_LANES: (3, "masked lanes count in the variance: 0 - mean is not 0, so use tl.where"),
        Mistake.CENTRING: (4, "LayerNorm subtracts the mean of the row before it squares; RMSNorm does not"),
        Mistake.WEIGHT_BY_ROW: (4, "weight and bias belong to columns: load them with the column offsets"),
        Mistake.NO_WEIGHT: (4, "the weight is missing: multiply by one value for each column"),
        Mistake.NO_BIAS: (4, "the bias is missing: add one value for each column"),
        Symptom.PRECISION: (
            3, "digits are lost: fp32 throughout, and differences from the mean, then squares",
        ),
        Mistake.MEAN_TERMS_DROPPED: (
            5, "dx lacks a mean over the row: mean and deviation depend on x as well",
        ),
        Mistake.NO_WEIGHT_IN_DX: (5, "dx starts from dy * weight"),
        Mistake.ROWS_NOT_SUMMED: (
            6, "the gradient of weight and bias is a sum over all rows, of all groups",
        ),
        Mistake.SUMS_NOT_SET: (
            6, "NaN where dx is finite: what is added to must hold 0 first, and no output does",
        ),
        Mistake.DWEIGHT_WITHOUT_N: (6, "dweight sums dy times the normalised row"),
        Symptom.NONDETERMINISTIC: (
            6, "two runs differ: a row of sums for each group of rows, and then the sum of these",
        ),
        Symptom.GRADIENT: (
            7, "save what backward needs, and return one gradient for each argument of forward",
        ),
        Symptom.NO_GRADIENT_FUNCTION: (7, "autograd saw no function: return the result of apply"),
        Mistake.NOT_SCALED: (8, "what is kept is to be divided by 1 - p, so that the mean stays"),
        Mistake.SCALED_BY_1_OVER_P: (8, "what is kept is to be multiplied by 1 / (1 - p), not by 1 / p"),
        Mistake.MASK_INVERTED: (
            8, "p is the probability to drop: keep where the random number is at least p",
        ),
        Mistake.KEEP_RATE: (
            8, "the share of kept elements is not 1 - p: compare numbers uniform in [0, 1) with p itself",
        ),
        Mistake.CHOICE_OF_RESULTS: (
            9, "where x is 0 no gradient passes: a result of 0 does not tell whether the element was kept",
        ),
        Mistake.IN_EVALUATION: (8, "in evaluation, `training=False`, the result is x itself"),
        Mistake.EDGE_OF_P: (8, "p = 0 keeps everything as it is, and p = 1 gives 0 everywhere: no 0 * inf"),
        Symptom.DIVISION_BY_ZERO: (8, "a divisor is 0: so is 1 - p for p = 1, where nothing is kept"),
        Mistake.MASK_REPEATS: (
            9, "the choice repeats itself: some elements share a random number with others",
        ),
        Mistake.SEED_IGNORED: (9, "another seed gave the same choice: hand `seed` to the generator"),
        Mistake.SEED_MOVES: (
            9, "the next seed gives the same choice at other elements: hand `seed` to the generator as it is",
        ),
        Symptom.OTHER_CONFIG: (
            9, "another config drops other elements: an element's random number must not depend on `BLOCK`",
        ),
        Symptom.OTHER_DTYPE: (
            9,
            "another dtype drops other elements: which random number an element gets and what it is compared "
            "with, must not depend on the dtype",
        ),
        Mistake.MASK_NOT_REPLAYED: (
            9, "dx is not 0 where y is: the same seed and the same offsets in both passes",
        ),
        Mistake.SCALED_GRADIENT: (8, "the gradient has the factor 1 / (1 - p), too, and once"),
        Mistake.DY_IN_MEMORY_ORDER: (
            7, "dy may be transposed, and was taken in the order of memory: hand on dy.contiguous()",
        ),
        Mistake.MEAN_LEFT_IN: (
            11, "the mean is still in the product: subtract it times the sum of the scaled row",
        ),
        Mistake.MEAN_NOT_SCALED: (11, "mean times the sum of the scaled row needs the factor rstd, too"),
        Mistake.MEAN_OF_OTHER_COLUMNS: (11, "the sums are those of gamma * weight, not those of the weight"),
        Mistake.SHIFT_SCALED: (11, "beta @ weight.T + bias stands outside of the factor rstd"),
        Mistake.ANOTHER_TILE: (11, "mean and rstd belong to the tile's rows, total and shift to its columns"),
        Mistake.WEIGHT_TRANSPOSED: (
            11, "the weight is (n_out, n_cols): a row of it for each column of the result",
        ),
        Mistake.NO_GAMMA: (11, "gamma is missing: it multiplies each column of the weight"),
        Mistake.DWEIGHT_OF_OTHER_ROWS: (
            11, "dweight sums dy times the row that met the weight: normalised, times gamma, plus beta",
        ),
        Mistake.NO_BETA: (11, "beta is missing: its product with the weight is one number for each column"),
        Symptom.MUTATED: (1, "an input was written to; the result belongs in `out`"),
        Symptom.OFFSETS_WRAP: (
            1, "right where rows lie close together: beyond 2^31 elements the offset of a row needs int64",
        ),
        Symptom.DY_LAYOUT: (7, "right for a contiguous dy, and autograd hands over any layout"),
        Symptom.WRONG: (2, "start with one row that fits one block, then one that does not"),
        Symptom.SLOW: (
            10, "look at how often a row is read, at reductions in loops, and at the tiles that you try",
        ),
    },
)  # fmt: skip
