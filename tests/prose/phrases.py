# SPDX-License-Identifier: BSL-1.0
"""The phrases that the prose of this repository avoids, as regular expressions.

A pattern matches text in which white space is a single space; case does not matter. Patterns are narrow on purpose: a
plain sentence that is refused costs more than a riddle that slips through. `bad` and `good` are the samples of the self
test: each of `bad` has to match, none of `good` may match any phrase.
"""

import re
from typing import NamedTuple


class Phrase(NamedTuple):
    name: str
    patterns: tuple  # any of them
    write: str  # what to write
    bad: tuple
    good: tuple = ()


# With these words before it, "alone" means "by itself".
BY_ITSELF = (
    r"(?:\d|\w+(?:ing|ed)\b|(?:acts?|as|be|been|being|builds?|communicates?|compiles?|computes?|done|goes|go|held|him|"
    r"is|are|it|kept|leaves?|left|let|lives?|made|ran|read|runs?|sent|stands?|steps|stood|taken|tests?|than|them|"
    r"trains?|was|were|works?|written)\b)"
)

PHRASES = (
    Phrase(
        "lies",
        (
            r"\b(?:lie|lies)\b(?! (?:between|inside|outside|within|above|below|beyond|in \[|in \(|"
            r"in (?:an?|the) (?:[\w-]+ ){0,2}(?:range|interval|image|padding)\b|on (?:a|the) (?:line|circle|axis)|"
            r"\d[^.;]{0,20} (?:below|above)))",
        ),
        "is stored, is, begins at; 'lies between' is for numbers and points",
        ("Gradients are reduced where they lie.", "The buffer lies on 64 bytes.", "A name lies in fixed memory."),
        (
            "The value lies between 0 and 1.",
            "Pixels lie inside the image.",
            "The rate lies in [0, 1).",
            "The number lies in the half open interval.",
            "Medians lie 10 to 30 % below the best.",
            "the underlying buffer",
            "This layer supplies a mask.",
        ),
    ),
    Phrase(
        "alone",
        (
            r"\b(?:by|of|in|from|for|on|to|with|at|and|as) (?:(?:a|an|the|its|this|that|these|those|one) )?"
            rf"(?:[\w'-]+ )?(?!{BY_ITSELF})[\w'.-]+ alone\b",
            r"(?<!leave )(?<!leaves )(?<!let )\b(?:the|a|an|its|this|that|these|those|one) "
            rf"(?:[\w'-]+ )?(?!{BY_ITSELF})[\w'.-]+ alone\b",
            r"\b(?:it|which|that|this|they|these|those|who) alone\b",
        ),
        "only; 'by itself' where something runs without others",
        (
            "Of a broadcast this is said of the root alone.",
            "There are pairs of bfloat16 alone.",
            "The shape alone sets the order.",
            "The component's headers are included by that component alone.",
            "by texts alone",
        ),
        (
            "Every header stands alone.",
            "A header compiles alone and links twice.",
            "the step of a rank that runs alone",
            "Leave the accelerator alone.",
            "a standalone program",
            "time of computing alone",
            "as fast as alone",
            "its gradients sent alone",
            "1.56, 1.78 and 1.72 alone",
        ),
    ),
    Phrase(
        "look for poll",
        (
            r"\blook(?:s|ed|ing)? at nothing\b",
            r"\b(?:every|each|rarer|fewer|many|several|\d+|between|those|these|number of|empty) looks\b",
            r"\b(?:every|each|one) look\b(?! (?:at|up|for)\b)",
            r"\b(?:a|its) look (?:takes?|costs?|finds?|moves?|that)\b",
            r"\blooks? (?:until|for (?:some|\d+)|every \d|again as|once|twice|three times|all the time|longer)\b",
            r"\blooks (?:that|of|before|at what is under way|follow|cost|find|compete)\b",
            r"\blooking (?:more|less) often\b",
            r"\blooked at (?:every|once|twice|again)\b",
        ),
        "poll",
        (
            "looks at nothing are most of what the thread costs",
            "It gives its processor away after 300 looks.",
            "every look costs system calls",
            "The thread looks until a look finds nothing.",
            "A rank looks for some 10 ms before it sleeps.",
            "between looks at what is under way",
            "Looking more often made it worse.",
            "a part that has to be looked at again",
        ),
        (
            "Look up the name.",
            "It looks like a link.",
            "Take a look at the trace.",
            "It looks for the smallest block.",
            "whichever of the two looks first",
            "Layers that look at the whole batch see one part.",
        ),
    ),
    Phrase(
        "so many",
        (r"\b(?<!not )so many\b(?!(?: [\w'-]+){1,4} that\b)",),
        "n, the given number of",
        ("in parts of so many examples", "averaged every so many steps"),
        ("so many files that the list is split", "not so many threads"),
    ),
    Phrase(
        "nobody, somebody",
        (r"\b(?:nobody|somebody)\b(?<!user nobody)(?<!uid nobody)",),
        "no rank, no thread, no caller; a rank, a user",
        ("Nobody waits for ever.", "memory that nobody gives back", "until somebody waits for it"),
        ("the user nobody", "a body of text"),
    ),
    Phrase(
        "is told, hears of",
        (
            r"\b(?:is|are|was|were|be|being|been) (?:only |also |then )?told\b(?! (?:apart|from)\b)",
            r"\bhears? (?:of|from|the|that|about|nothing)\b",
        ),
        "receives, is notified, is called for; is given",
        (
            "A device is told when it ends.",
            "The recorder is told what a tick is.",
            "It hears of failures.",
            "ranks hear the number of the step",
        ),
        ("The two cannot be told apart.", "It shears from the block.", "unless told otherwise"),
    ),
    Phrase(
        "no number",
        (r"\b(?:is|are|was|be|were|or|nor|holds?) no numbers?\b(?! (?:of|in|at|follows?|after)\b)",),
        "NaN; of a text: not a number",
        ("Whether an element is infinite or no number.", "results that are no numbers"),
        ("There is no number of threads for which this fails.", "an option with no number", "the number of images"),
    ),
    Phrase(
        "the how many-th",
        (r"\bhow many-?th\b",),
        "the index",
        ("The how many-th collective of its channel.", "the how manyth step"),
        ("how many threads",),
    ),
    Phrase(
        "beside for besides",
        (
            r"\b(?:nothing|anything|something|everything|all|else|librar(?:y|ies)|options?|devices?|types?) beside\b",
            r"\bwhat (?:[\w'-]+ ){1,4}beside the (?:least|rest)\b",
            r"\bbeside\s*[,.;:)]",
        ),
        "besides, other than; separately",
        (
            "What a plan does beside the least.",
            "It needs a library beside Eigen.",
            "Transfers are counted beside, as hidden.",
        ),
        ("a file beside it", "the bar stands beside the axis", "side by side"),
    ),
    Phrase(
        "beside for compared with",
        (
            r"\bbeside (?:oneDNN|libtorch|PyTorch|torch|MKL|the MPI library|MPI_\w+|the vendor|transfers?)\b",
            r"\b(?:faster|slower|as fast|ratio|benchmarks?|compared)\b[^.;:]{0,30} beside\b",
        ),
        "compared with; during",
        (
            "Convolutions beside oneDNN's best format.",
            "a benchmark of all-reduce beside the MPI library",
            "Backward is slower beside transfers.",
        ),
        ("a file beside the program", "The programs beside it measure the network."),
    ),
    Phrase(
        "as ever",
        (r"\bas ever\b",),
        "as before, eagerly, unchanged",
        ("The first full batch is trained on as ever.",),
        ("They wait for ever.",),
    ),
    Phrase(
        "What ... is, it ...",
        (
            r"(?:^|(?<=[.;] ))What\b(?! (?:to|is to)\b)[^.?;:,]{3,90}, "
            r"(?:it|they|that|the (?:[\w'-]+ )?(?:does?|is|are|takes|do))\b",
            r"(?:^|(?<=[.;] ))What of\b",
        ),
        "the noun as the subject: 'The trainer ...', 'The layout-independent part ...'",
        (
            "What a layer does not say, the network does.",
            "What costs time is, it takes a step.",
            "What of a network does not depend on the layout.",
        ),
        ("What to do when it fails, and why.", "What is left?", "What it can do, and not yet"),
    ),
    Phrase(
        "those of as a subject",
        (r"(?:^|(?<=[.!?:] ))(?-i:That|Those) of\b",),
        "the noun: 'The buffers of the rule'",
        ("Those of frozen layers come last.", "Sums are exact. Those of ranks follow.", "That of the strategy within."),
        ("as fast as those of PyTorch", "the order is that of backward", "one of those of rank 0"),
    ),
    Phrase(
        "only See",
        (r"^(?-i:See) [\w:.()~]+(?: and [\w:.()~]+)?\.?$",),
        "what it is or does: 'Implements has_matmul on the CPU.', 'Calls link::ask_others.'",
        ("See has_matmul.", "See tile_kernels::finish and finish_bfloat16.", "See rank()."),
        ("A time limit; see link::time_limit.", "See the guide for its options.", "Seek begins at the offset."),
    ),
    Phrase(
        "British spelling",
        (
            r"\b\w*(?:normalis|initialis|optimis(?!t|m)|synchronis|finalis(?!t)|serialis|organis(?!m)|recognis|"
            r"parallelis(?!m)|vectoris|quantis|generalis(?!t)|summaris|minimis|maximis|specialis(?!t)|regularis)\w+\b",
            r"\blicences?\b",
        ),
        "American spelling: normalization, initializer, optimization, license",
        ("normalisation", "an initialiser", "optimised", "recognise", "the licence", "MPI cannot finalise"),
        ("optimistic", "finalists", "promise", "otherwise", "parallelism", "organism", "license"),
    ),
    Phrase(
        "retired word",
        (
            r"\b(?:the|of|and|its|whose) slopes\b",
            r"\bslope (?:of (?:a parameter|these)|agrees)\b",
            r"\bminimal filtering\b",
            r"\bthin products?\b",
            r"\bnarrow groups?\b",
            r"\bGPU that the host plays\b",
            r"\brecorded (?:step|network)s?\b",
            r"\bfrozen networks?\b",
        ),
        "gradient; Winograd; matrix-vector product; small groups; host-side CUDA emulation; captured; compiled",
        (
            "the slopes",
            "by minimal filtering",
            "a thin product",
            "narrow groups",
            "a GPU that the host plays",
            "a recorded step",
            "a frozen network",
        ),
        ("a negative slope of 0.1", "the slope of the line", "narrow loops", "a recorded message"),
    ),
)

COMPILED = tuple((phrase, re.compile("|".join(phrase.patterns), re.IGNORECASE)) for phrase in PHRASES)
