"""One offline release of all rows by AIM or MST: run by benchmarks.peers in the environment of dpmm 0.1.9.

    python benchmarks/peer.py aim 1.0 1e-9 0 rows.npz synthetic.npz

``rows.npz`` holds ``codes``, shape ``(rows, columns)``, and ``sizes``, shape ``(columns,)``. Sources: McKenna, Mullins,
Sheldon, Miklau 2022 (AIM); McKenna, Miklau, Sheldon 2021 (MST). Both have the defaults of dpmm: AIM's model has up to
80 MB, and noise is sized by zCDP.
"""

import sys

import numpy as np
import pandas as pd
from dpmm.models.aim import AIMGM
from dpmm.models.mst import MSTGM


def main() -> None:
    """Fit, draw as many rows as there were, write them."""
    method, epsilon, delta, seed, source, target = sys.argv[1:]
    data = np.load(source)
    names = [f"c{i}" for i in range(len(data["sizes"]))]
    rows = pd.DataFrame(data["codes"], columns=names)
    budget = {"epsilon": float(epsilon), "delta": float(delta)}
    model = AIMGM(n_jobs=1, **budget) if method == "aim" else MSTGM(n_jobs=1, **budget)
    model.set_random_state(np.random.RandomState(int(seed)))
    model.set_domain(dict(zip(names, map(int, data["sizes"]), strict=True)))
    model.fit(rows)
    found = model.generate(n_records=len(rows))
    np.savez_compressed(target, codes=found[names].to_numpy().astype(np.int32))


if __name__ == "__main__":
    main()
