"""Published values of Bayesian neural networks: Tables 4 to 6 of Ober & Aitchison 2021."""

from __future__ import annotations

__all__ = ["NETWORKS", "NETWORK_DATASETS"]

NETWORK_DATASETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "wine_red", "yacht")

# A line a model: posterior, prior, and mean and standard error over 20 splits for each data set.
_TABLES = {
    "test_log_likelihood": """
factorised-neal -2.76±0.04 -3.21±0.01 -0.79±0.02 1.26±0.01 7.37±0.03 -2.81±0.01 -0.99±0.01 -1.58±0.04
factorised-standard -2.74±0.03 -3.17±0.02 -0.76±0.02 1.24±0.01 7.25±0.04 -2.81±0.01 -0.98±0.01 -1.41±0.05
factorised-scale -3.63±0.03 -3.89±0.09 -2.55±0.01 1.23±0.01 6.99±0.03 -2.82±0.01 -1.22±0.01 -4.12±0.03
local-inducing-neal -2.71±0.04 -3.29±0.01 -2.06±0.09 1.06±0.01 4.28±0.37 -2.84±0.01 -0.98±0.01 -1.84±0.05
local-inducing-standard -2.8±0.04 -3.28±0.01 -1.75±0.01 1.06±0.01 6.06±0.1 -2.82±0.01 -0.99±0.01 -2.39±0.05
local-inducing-scale -2.73±0.03 -3.3±0.01 -2.42±0.02 1.1±0.01 2.8±0 -2.84±0.01 -0.99±0.01 -2.71±0.22
global-inducing-neal -2.55±0.05 -3.14±0.01 -0.72±0.02 1.18±0.01 6.97±0.04 -2.82±0.01 -0.97±0.01 -0.81±0.03
global-inducing-standard -2.59±0.03 -3.08±0.01 -0.73±0.03 1.22±0.01 7.29±0.04 -2.8±0.01 -0.96±0.01 -0.68±0.03
global-inducing-scale -2.5±0.04 -3.12±0.01 -0.73±0.02 1.19±0.01 6.63±0.04 -2.82±0.01 -0.96±0.01 -0.79±0.02
""",
    "rmse": """
factorised-neal 3.64±0.24 5.96±0.11 0.51±0.01 0.07±0 0±0 4.03±0.04 0.66±0.01 1.15±0.07
factorised-standard 3.6±0.21 5.73±0.11 0.51±0.01 0.07±0 0±0 4±0.03 0.65±0.01 0.98±0.07
factorised-scale 9.03±0.26 12.66±1.04 3.02±0.05 0.07±0 0±0 4.06±0.04 0.82±0.01 14.55±0.59
local-inducing-neal 3.55±0.23 6.35±0.12 1.95±0.14 0.08±0 0.01±0 4.13±0.03 0.65±0.01 1.37±0.11
local-inducing-standard 3.85±0.26 6.34±0.11 1.35±0.02 0.08±0 0±0 4.06±0.03 0.65±0.01 2.35±0.13
local-inducing-scale 3.57±0.2 6.48±0.12 2.67±0.06 0.08±0 0.01±0 4.12±0.04 0.65±0.01 5.75±1.34
global-inducing-neal 3.14±0.18 5.64±0.1 0.49±0.01 0.07±0 0±0 4.06±0.03 0.64±0.01 0.57±0.04
global-inducing-standard 3.13±0.2 5.39±0.09 0.5±0.01 0.07±0 0±0 3.96±0.04 0.63±0.01 0.56±0.04
global-inducing-scale 2.97±0.19 5.56±0.1 0.5±0.01 0.07±0 0±0 4.05±0.04 0.64±0.01 0.56±0.04
""",
    "objective_per_point": """
factorised-neal -1.03±0 -0.88±0 0.21±0 -0.35±0 2.02±0.02 -0.05±0 -1.31±0 -0.46±0.02
factorised-standard -1.55±0 -1.1±0 -0.13±0.02 -0.38±0 1.68±0.01 -0.08±0 -1.48±0 -1.04±0.02
factorised-scale -1.54±0 -1.45±0.01 -1.12±0 -0.51±0 1.91±0.03 -0.13±0 -1.46±0 -1.61±0
local-inducing-neal -0.99±0 -0.87±0 -0.33±0.04 -0.43±0 -0.09±0.34 -0.05±0 -1.3±0 -0.39±0.01
local-inducing-standard -1.54±0 -1.08±0 -0.53±0.01 -0.43±0 1.65±0.09 -0.06±0 -1.47±0 -1.3±0.02
local-inducing-scale -0.96±0 -0.88±0 -0.47±0.01 -0.39±0.01 -1.42±0 -0.05±0 -1.29±0 -0.77±0.1
global-inducing-neal -0.63±0 -0.59±0 0.95±0 -0.31±0 2.53±0.04 -0.01±0 -1.22±0 0.74±0.01
global-inducing-standard -1.02±0.01 -0.71±0 0.72±0 -0.26±0 2.89±0.04 -0.02±0 -1.36±0 0.08±0.01
global-inducing-scale -0.59±0 -0.57±0 0.96±0.01 -0.29±0 2.3±0.03 -0.01±0 -1.22±0 0.79±0.01
""",
}

#: By metric, then by model (`bnn-` and the names of posterior and prior) and layers.
NETWORKS: dict[str, dict[tuple[str, int], list[tuple[float, float]]]] = {
    metric: {
        (f"bnn-{name}", 3): [(float(a), float(b)) for a, b in (cell.split("±") for cell in cells)]
        for name, *cells in map(str.split, table.strip().splitlines())
    }
    for metric, table in _TABLES.items()
}
