"""Published values of amortised deep GPs and what they are compared to: Table 5 of Meng & Zhang 2024."""

from __future__ import annotations

from .published_tables import read_table

__all__ = ["AMORTIZED", "AMORTIZED_DATASETS", "AMORTIZED_SPLITS"]

AMORTIZED_DATASETS = ("kin8nm", "elevators", "bike", "protein", "keggdirected")
AMORTIZED_SPLITS = 5

# A line a model: name, layers, and mean and standard deviation over the splits for each data set, of
# standardised targets.
_TABLES = {
    "standardised_nll": """
SOLVE 1 0.236±0.024 0.267±0.009 0.89±0.01 1.037±0.009 0.133±0.016
mean-field 3 0.29±0.024 0.108±0.02 -0.147±0.023 1.036±0.007 -0.028±0.013
dspp 3 0.147±0.028 0.053±0.014 -0.568±0.042 0.582±0.029 -1.551±0.043
idsgp 1 0.104±0.022 0.129±0.009 -0.171±0.036 0.994±0.017 -0.339±0.043
ar1 3 0.157±0.014 0.1±0.014 -0.269±0.026 0.957±0.01 -
ar2 3 0.171±0.039 0.117±0.017 -0.27±0.033 0.95±0.015 -
ar2p 3 0.118±0.037 0.125±0.021 -0.299±0.035 0.91±0.012 -0.56±0.03
ar2pp 3 0.066±0.022 0.054±0.012 -0.742±0.024 0.226±0.028 -1.783±0.021
""",
    "standardised_rmse": """
SOLVE 1 0.302±0.012 0.336±0.01 0.591±0.009 0.683±0.006 0.291±0.005
mean-field 3 0.316±0.006 0.289±0.003 0.23±0.009 0.688±0.005 0.252±0.005
dspp 3 0.283±0.008 0.29±0.005 0.251±0.009 0.679±0.009 0.269±0.007
idsgp 1 0.27±0.006 0.293±0.006 0.23±0.01 0.658±0.009 0.214±0.005
ar1 3 0.282±0.003 0.288±0.005 0.224±0.007 0.641±0.007 -
ar2 3 0.279±0.007 0.288±0.005 0.216±0.006 0.635±0.006 -
ar2p 3 0.266±0.007 0.295±0.003 0.218±0.006 0.628±0.007 0.204±0.004
ar2pp 3 0.263±0.004 0.294±0.003 0.216±0.005 0.69±0.006 0.285±0.021
""",
    "standardised_crps_as_published": """
SOLVE 1 0.195±0.005 0.206±0.002 0.356±0.002 0.435±0.005 0.162±0.002
mean-field 3 0.195±0.005 0.174±0.002 0.126±0.004 0.423±0.003 0.137±0.002
dspp 3 0.173±0.005 0.17±0.002 0.125±0.005 0.386±0.006 0.112±0.003
idsgp 1 0.172±0.005 0.178±0.001 0.129±0.006 0.402±0.007 0.107±0.003
ar1 3 0.174±0.002 0.171±0.002 0.118±0.003 0.379±0.003 -
ar2 3 0.175±0.004 0.175±0.003 0.116±0.004 0.371±0.006 -
ar2p 3 0.168±0.004 0.176±0.002 0.115±0.003 0.357±0.003 0.093±0.001
ar2pp 3 0.161±0.005 0.161±0.004 0.094±0.003 0.324±0.006 0.1±0.005
""",
}

#: By metric, then by model and layers.
AMORTIZED = {
    metric: read_table(table, splits=AMORTIZED_SPLITS) for metric, table in _TABLES.items()
}
