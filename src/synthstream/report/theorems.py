"""What each theorem says, in one line. The proofs are in ``docs/theorems`` of the package's repository."""

STATEMENTS = {
    "availability": "Which releases exist, and when, depends on the configuration, the clock and whether sources "
    "can be reached, and on no row.",
    "batchwise": "A total and chosen tables of each batch, measured afresh, cost one batch's budget, since an event is"
    " in one batch.",
    "blt": "The buffered Toeplitz counter in fixed point: its running sums cost no more than its largest column.",
    "choose": "Choosing the largest score after exponential noise is epsilon-differentially private.",
    "dense": "Running sums at a few public times by a lower-triangular matrix cost no more than its largest column.",
    "discrete-gaussian": "Integer noise of the discrete Gaussian law is concentrated-differentially private, and "
    "the sampler draws from that law.",
    "discrete-laplace": "Integer noise of the discrete Laplace law is differentially private, and the sampler "
    "draws from that law.",
    "epochs": "One fresh measurement at the end of ever longer epochs costs one epoch's budget, since an event is "
    "in one epoch; the running total is paid beside it.",
    "exact-gaussian": "What discrete Gaussian noise promises by its law itself: more than by its moments alone.",
    "group": "A promise for one event becomes a promise for a person with at most m events that count.",
    "hypercube": "Sparse counts in the nodes of a growing partition are differentially private if one event is "
    "replaced.",
    "joint-laplace": "Integer noise for several tables together costs what the table that one event changes most "
    "costs, and the sampler draws from its law.",
    "kary": "The k-ary tree with subtraction: each event is in few noisy spans, whose costs add up to the budget.",
    "least-error": "What releasing at many ticks costs at least in accuracy, if noise is added to sums.",
    "marginals": "All tables of the workload at every tick satisfy the one budget that is divided among them.",
    "nodes": "Running sums made of noisy spans cost at most what the spans that hold one event cost together.",
    "participation": "Several events of one person in one matrix counter cost less than as many separate ones.",
    "passes": "The number of noisy comparisons that pass in a row can be drawn at once, with the same law.",
    "paths": "Costs that depend on what was released compose to their largest sum, if that is bounded on every path.",
    "points": "A private number of events and differences in nodes of a partition, epoch by epoch, stay within the "
    "budget.",
    "points-accuracy": "How far the synthetic points are from the true ones on average, with the fixed schedule.",
    "refreshed": "Small tables at every tick and larger ones at refreshes, which come when planned or when releases "
    "tell of a burst, satisfy the one budget that is divided among them: an event is in one tick, and between two "
    "refreshes.",
    "restarted": "A counter without end, made of bounded ones one after the other, costs what one of them costs.",
    "segments": "Going on after the private state was lost costs nothing more: every event counts in one segment "
    "alone.",
    "selective": "Tables that are selected and then counted, each by a counter of its own, satisfy the one budget.",
    "simple": "Fresh noise at every tick: an event is in one tick, and costs that tick's noise.",
    "succession": "Going on with other settings: an event counts on one side of each cut alone, and has the largest of "
    "the promises; a person has their sum.",
    "toeplitz": "The counter by the square root of the prefix matrix: its running sums cost no more than its first "
    "column.",
}
