"""Why a prediction was far off: for each question of the labs and the assignments, the numbers that
a known misconception leads to, and a sentence on it.

A guess is a number (met within 1 %), a range (from, to), or a function of what was measured that
gives a range. The first that the prediction meets is named; none is where the prediction is right
(within 4 %: the labs' measured times scatter by that much).
"""

from __future__ import annotations

import math
from collections.abc import Callable

Guess = float | tuple[float, float] | Callable[[float], tuple[float, float]]
RIGHT = 1.04  # a factor up to this one is right
ANY = math.inf

MISCONCEPTIONS: dict[str, dict[str, list[tuple[Guess, str]]]] = {
    "00": {
        "messages of a ring all-reduce, 4 ranks": [
            (
                12,
                "12 counts the reduce-scatter alone: the all-gather sends as many messages again.",
            ),
            (
                6,
                "6 is the number of rounds, 2(n-1): in each of them all 4 ranks send a message.",
            ),
            (
                3,
                "3 messages take one chunk through the reduce-scatter: there are 4 chunks, and "
                "each goes round a second time.",
            ),
            (4, "4 is one round: each rank sends one message, and 6 rounds follow one another."),
            (
                8,
                "8 is two messages for each rank: a rank sends one in each of the 6 rounds.",
            ),
            (
                16,
                "16 sends each chunk to all 4 ranks once: a chunk goes past the others twice, to "
                "be summed and to be copied, in 3 messages each time.",
            ),
            (
                32,
                "32 counts n = 4 rounds for each half: after n-1 = 3 rounds a chunk has been "
                "past all the others.",
            ),
            (48, "48 counts each message twice, where it is sent and where it is received."),
        ],
        "share of the time in which a rank computes": [
            ((0, 0.2), "The unit is percent: 5 % is written as 5, not as 0.05."),
            (
                25,
                "25 % would be a fair share of one core: it leaves out that a message costs more "
                "than the layer whose gradient it carries.",
            ),
            (
                lambda measured: (max(40, 2 * measured), 100),
                "That is usual where a layer takes milliseconds. A layer of this small network "
                "takes some tens of microseconds, less than a message, so ranks mostly wait.",
            ),
            ((100.1, ANY), "A share of the time is at most 100 %."),
        ],
        "speed-up of 4 ranks over 1, naive": [
            (
                (3.95, 4.05),
                "4 leaves communication out: after backward all ranks wait for the all-reduces.",
            ),
            (
                (3.3, 3.95),
                "That pays for too few messages: there are seven all-reduces one after another, "
                "and each of their 6 rounds takes at least 1 ms.",
            ),
            (
                (1.4, 1.6),
                "That counts the 24 messages of an all-reduce one after another: in a round all "
                "four ranks send at the same time, so 6 of them follow one another.",
            ),
            (
                (0.9, 1.1),
                "1 says that four ranks gain nothing: each computes on a quarter of the batch.",
            ),
            ((4.1, ANY), "Four ranks are at most four times as fast: they share the same work."),
        ],
        "a DDP step on the classroom machine": [
            (
                (96, 101),
                "100 ms hides all communication: the last bucket leaves when backward is over, so "
                "no backward is left to hide it behind.",
            ),
            (
                (113, 126),
                "That lets all three buckets travel after backward: the first two travel while "
                "backward goes on, and the rank waits for the last one alone.",
            ),
            ((136, 150), "About 142 ms is the naive step: it hides no communication."),
            (
                (0, 96),
                "The ranks compute for 100 ms. Communication can hide behind that; it cannot "
                "shorten it.",
            ),
            ((380, 420), "400 ms is the step of one rank, which has four times the work."),
        ],
        "seconds until a deadlock is named": [
            (
                (590, 610),
                "600 s is the limit for the whole run. Nobody waits for it: the run is ended as "
                "soon as no message can come that any rank waits for.",
            ),
            (
                (5, 590),
                "That is a time-out, the patience that a program needs when it can only watch for "
                "silence. Here every rank posts whom it waits for, so a deadlock is seen at once.",
            ),
            (
                (610, ANY),
                "A program that nobody watches would hang for ever. Here every rank posts whom it "
                "waits for, so a deadlock is seen at once.",
            ),
        ],
    },
    "01": {
        "layer storage of a step, MLP 64-128-128-10, 64 images": [
            (104.488, "104 KB are the weights alone: outputs and gradients take the rest."),
            (208.976, "209 KB are the weights and their gradients: each layer has an output too."),
            (
                213.152,
                "213 KB are a step on one image: outputs and their gradients are there for each "
                "of the 64.",
            ),
            (238.12, "238 KB are weights and outputs: each of these numbers has a gradient."),
            (267.264, "267 KB are outputs and their gradients: the weights come on top."),
            (
                345.168,
                "345 KB count the linear layers alone: a ReLU stores its output and the gradient "
                "of that as well.",
            ),
            (119.06, "119 thousand is how many numbers there are: each takes 4 bytes."),
            (952.48, "952 KB would be numbers of 8 bytes: float32 takes 4."),
            ((5000, ANY), "The unit is KB, 1000 bytes: 476,240 bytes are 476 KB."),
        ],
        "kept by autograd, MLP 64-128-128-10, 64 images": [
            (
                (129, 136),
                "That keeps every output. Nobody reads the output of a linear layer again once "
                "its ReLU has been applied.",
            ),
            (
                65.536,
                "66 KB are the outputs of both ReLUs: the first linear layer needs its input, the "
                "images, too.",
            ),
            (
                147.456,
                "147 KB count the outputs of the ReLUs twice: a ReLU's output and the next "
                "layer's input are one tensor.",
            ),
            (150.016, "150 KB are the images and every output: two of the outputs are not read."),
            (
                186.408,
                "186 KB count the weights too: they are there anyway, and nothing is copied.",
            ),
            (
                (230, 245),
                "Half of what the formula counts would be all weights and outputs: the backward "
                "reads only some of the outputs.",
            ),
            (
                0,
                "Without anything of the forward the backward would have to run it again: that "
                "is recomputation, which autograd does only when asked.",
            ),
        ],
        "speed-up by momentum, curvatures 1 and 100": [
            (
                10,
                "10 is √100, the ratio of the formulas. At its best rate momentum's error falls "
                "like t·(9/11)ᵗ, and the factor t costs 24 steps on top of 69.",
            ),
            (
                (2.9, 3.1),
                "3 is 1 / (1-μ), how much longer momentum's steps grow where all gradients agree: "
                "here each rule already has its best rate.",
            ),
            (100, "100 is the ratio of the curvatures: momentum takes its root, at best."),
            (
                (0, 1.2),
                "Momentum does help without noise, too: on the flat direction its velocity adds "
                "up, on the steep one it cancels.",
            ),
            ((10.3, 99), "No more than √100 = 10 can be had by momentum with these curvatures."),
        ],
        "AdaGrad: turned ravine over ravine along the axes": [
            (
                (0.96, 1.04),
                "1 holds for SGD, momentum and Nesterov. AdaGrad scales weight by weight, so "
                "turning the axes changes its path.",
            ),
            (
                (1.35, 1.5),
                "1.41 = √2 is how a turn by 45 degrees changes the weights: what matters is that "
                "no weight is steeper than the other any more.",
            ),
            (
                5,
                "5 is √25, what a ravine costs a rule with momentum: AdaGrad has none, and its "
                "rates fall all the way.",
            ),
            (
                25,
                "25 is the ratio of the curvatures: a rate for each weight is lost by turning, but "
                "the sum of squares still sets a rate that fits the steep direction.",
            ),
            (2, "2 for two weights: what counts is how steep the ravine is, not how many weights."),
        ],
        "Nesterov as printed: largest rate at which it comes to rest, curvature 1": [
            ((1.3, 1.4), "That is torch's form: the printed one looks back instead of ahead."),
            (2, "2 is gradient descent without momentum, 2 / curvature."),
            (3.8, "3.8 is momentum without a look ahead, (2+2μ) / curvature."),
            (
                0.1,
                "0.1 is 1-μ. At that rate the printed form already grows: the bound is "
                "(1-μ)/(1+μ).",
            ),
            (
                (0.15, 1.25),
                "The printed form answers a gradient one step late and pushes the wrong way "
                "meanwhile, so its rate must be far smaller: (1-μ)/(1+μ).",
            ),
            (0, "With a rate small enough it does come to rest: below (1-μ)/(1+μ)."),
        ],
        "noise of the gradient: batch 16 over batch 256": [
            (16, "16 is the ratio of the batches, and of the variances: noise is their root."),
            (
                256,
                "256 compares 16² with 1: the mean of 16 times as many has √16 times less noise.",
            ),
            (
                (0, 0.9),
                "The larger batch is the less noisy one, and the question asks how many times: "
                "the number is above 1.",
            ),
            ((1, 1.1), "A mean of more images scatters less: by the root of how many more."),
            (2, "2 is the root of 4: the batch is 16 times as large, and √16 = 4."),
            (8, "8 halves 16: the noise of a mean falls by the root, √16 = 4."),
        ],
        "steps to 5 % error, batch 1,024, rate 0.1": [
            (
                (10, 11.5),
                "340 / 32 would make the steps 32 times as long. The rate is the same, so they "
                "are as long as before.",
            ),
            (
                (57, 63),
                "340 / √32 takes less noise for faster: the length of the steps held training "
                "up, not their noise.",
            ),
            (
                (320, 360),
                "That is the number for 32 images, and the right idea: at the same rate less "
                "noise saves nothing. It even costs some steps here.",
            ),
            (
                (1, 319),
                "A larger batch at the same rate does not make the steps longer, and their length "
                "is what held training up.",
            ),
            (
                (489, ANY),
                "Half a million images are 488 steps of 1,024, and all runs arrive before that.",
            ),
        ],
        "batch with the fewest steps, rate scaled": [
            (
                1024,
                "With 1,024 images the scaled rate, 3.2, is above 2 / curvature from the first "
                "step on: no run arrives.",
            ),
            (
                512,
                "With 512 images the scaled rate, 1.6, is too large for most of the way: the "
                "seeds scatter, and their median is above that of 256.",
            ),
            (128, "128 takes half the steps of 64, and the next doubling saves as much again."),
            (64, "64 takes half the steps of 32: there is more to be had."),
            (
                (1, 33),
                "A small batch needs a small rate, and so the most steps: here the rate grows "
                "with the batch.",
            ),
        ],
    },
    "02": {
        "messages of a butterfly, 4 ranks": [
            (
                12,
                "12 is everyone to everyone (direct). In a butterfly a rank has one partner a "
                "round, and 2 rounds reach all 4 ranks.",
            ),
            (4, "4 counts an exchange as one message: each partner sends one, so it is two."),
            (2, "2 is the number of rounds, lg n: in each of them every rank sends a message."),
            (
                16,
                "16 goes back as well, as halving-doubling does with its pieces. A butterfly "
                "exchanges whole tensors: after 2 rounds every rank has the sum already.",
            ),
            (24, "24 is the ring. A butterfly needs lg n = 2 rounds instead of 2(n-1) = 6."),
            (6, "6 is a tree: three messages to its root and three back."),
        ],
        "latency of a message between two processes": [
            (
                (0, 1),
                "In a microsecond a core reads its main memory about ten times. A message between"
                " processes passes through the operating system and wakes the receiver.",
            ),
            (
                lambda measured: (1, measured / 2),
                "Networks whose cards write into the other process's memory take a few "
                "microseconds. Here a message takes the path through the operating system, called"
                " from Python.",
            ),
            (
                lambda measured: (5 * measured, ANY),
                "That is the latency of a network between machines: these two processes share one"
                " machine, and no cable lies between them.",
            ),
        ],
        "ring all-reduce of 100 KB, 4 ranks, slow network": [
            (
                12,
                "12 ms are the six latencies alone (or one message of 100 KB): each round also "
                "carries a quarter of the tensor, 2.5 ms.",
            ),
            (15, "15 ms are the bytes alone: each of the 6 rounds also takes a latency of 2 ms."),
            (
                10,
                "10 ms is the time for the bytes of one tensor: a ring carries 1.5 of them, in "
                "6 rounds that take 2 ms each besides.",
            ),
            (13.5, "13.5 ms is the reduce-scatter alone: the all-gather takes as long again."),
            (4.5, "4.5 ms is one round: 2(n-1) = 6 rounds follow one another."),
            (
                72,
                "72 ms sends the whole tensor in each of the 6 rounds: a ring sends a quarter.",
            ),
            (
                108,
                "108 ms lets all 24 messages follow one another: in a round the four ranks send "
                "at the same time.",
            ),
        ],
        "the ring overtakes the butterfly, 8 ranks, slow network": [
            (
                20,
                "20 KB is α/β, where a message's bytes cost as much as its latency. What counts "
                "here are differences: 11α for the butterfly, 1.25sβ for the ring.",
            ),
            (22, "22 KB is the ring's chunk at that size: the tensor has 8 of them."),
            (
                220,
                "220 KB is 11α/β: it takes the butterfly's bytes for one tensor more than the "
                "ring's, and they are 3 - 1.75 = 1.25 more.",
            ),
            (
                (91, 96),
                "That sets the ring's latency against the butterfly's bytes, 14α = 3sβ: the ring "
                "has bytes and the butterfly has latency too.",
            ),
            (
                (0, 15),
                "So short a tensor is nearly all latency: the ring has 14 of them, the butterfly "
                "3.",
            ),
            (
                (600, ANY),
                "So long a tensor is nearly all bytes, and there the ring is far ahead: at 1 MB "
                "the butterfly takes half as long again.",
            ),
        ],
        "halving-doubling: wired to neighbours over switch, 1 MB": [
            (
                1,
                "1 would hold if every pair had a path of its own: here a message crosses up to "
                "four links, and other messages need them at the same time.",
            ),
            (
                (3.8, 4.2),
                "4 would hold if every message crossed four links: the long messages go to "
                "neighbours, and those that go far are short.",
            ),
            (
                (2.2, 2.45),
                "That is the average distance, (1 + 2 + 4)/3. The long messages go to neighbours, "
                "so the short distances count more.",
            ),
            (
                (4.5, ANY),
                "No message crosses more than four links, and the longest ones cross one.",
            ),
            ((0, 0.9), "The links are the same and there are fewer of them: nothing gets faster."),
        ],
        "ring: two racks over switch, 100 KB": [
            (
                1,
                "1 leaves out that the ring crosses from rack to rack twice: each round is as "
                "slow as its slowest link.",
            ),
            (
                10,
                "10 would hold if a message were bytes alone: its latency of 2 ms stays the same.",
            ),
            (
                (1.1, 3.5),
                "That averages over fast and slow links: a round is over when its slowest message "
                "has arrived, so all 14 rounds last as long as the slow link takes.",
            ),
            (
                (10.5, ANY),
                "That lets several messages queue for the slow link: of a ring only one link "
                "leads from rack to rack each way, so nothing queues.",
            ),
        ],
        "ring over hierarchical, two hosts of two ranks, 16 MB": [
            (
                1,
                "1 compares what a rank sends, 1.5 tensors in both: of these the hierarchical "
                "all-reduce has one tensor in all cross the cable each way, the ring 1.5.",
            ),
            (
                3,
                "3 compares rounds that cross the cable, 6 with 2: in each of the 2 both ranks of "
                "a host send their quarter, and share the cable.",
            ),
            (
                2,
                "2 has the ring send the tensor there and back: the cable carries both ways at "
                "the same time, and each way it is 6 rounds of a quarter, 1.5 tensors.",
            ),
            (1.75, "1.75 tensors are a ring's of eight ranks: with four it is 2(4-1)/4 = 1.5."),
            (
                (0.6, 0.72),
                "That is the hierarchical all-reduce over the ring: the question asks for the "
                "ring over the hierarchical one.",
            ),
            (
                (4, ANY),
                "Latencies hardly count for 16 MB, so only bytes can make a difference: 1.5 "
                "tensors cross the cable in a ring, 1 in the hierarchical all-reduce.",
            ),
        ],
    },
    "03": {
        "loss in step 20, 4 ranks, sum of gradients": [
            (
                (1.58, 1.66),
                "That is the loss with the mean: without the division each step is four times as "
                "long, and the training is another one.",
            ),
            (
                (0, 1.58),
                "Longer steps go down faster only while they are not too long: these jump across "
                "the valley, and what is left is a guess among ten classes, ln 10 = 2.3.",
            ),
            (
                (2.6, ANY),
                "Steps that are too long can raise the loss for a while. Here it comes back to "
                "that of a guess among ten classes, ln 10 = 2.3.",
            ),
        ],
        "weights that differ between ranks 0 and 3 after 100 steps": [
            (
                (1, 99),
                "Rounding would differ if each rank added in an order of its own. In a ring one "
                "rank adds up a chunk, and the others get a copy of the result.",
            ),
            (
                (100, 8999),
                "A difference would grow from step to step, if there were one: all ranks start "
                "alike and move by the same bits.",
            ),
            (
                (9000, ANY),
                "The ranks see other images, but they do not move by their own gradients: all "
                "move by the mean, which is the same on every rank.",
            ),
        ],
        "lowest mean loss that any model can have on new sentences": [
            (
                0,
                "0 needs a text in which the next word is certain. The grammar draws its rules at "
                "random, and no model knows what it will draw.",
            ),
            (
                (0, 1.2),
                "That leaves a choice among e^1.2 = 3.3 equally likely words or fewer, in the "
                "mean: the rules of the grammar leave more open.",
            ),
            ((2.5, 2.56), "That is the answer in bits: a nat is 1.44 bits."),
            (
                (2.2, 3.7),
                "That leaves a choice among nine or more equally likely words at each place: the "
                "rules leave about six in the mean.",
            ),
            (
                (3.7, 3.9),
                "A model that knows nothing has ln 45 = 3.8: the rules allow far fewer "
                "than 45 words at each place.",
            ),
            ((3.9, ANY), "That is worse than knowing nothing, which has ln 45 = 3.8."),
        ],
        "loss of shards of 15 and 5 targets, an average of averages": [
            (
                (1.88, 2),
                "That weighs every target alike, as one process does: an average of averages "
                "weighs the 5 targets of rank 1 as much as the 15 of rank 0.",
            ),
            ((3.4, 3.7), "That is the sum of the two means: divide it by the number of ranks."),
            ((2.05, 2.25), "That is rank 0 alone: rank 1 has a weight of one half as well."),
            ((1.36, 1.48), "That is rank 1 alone: rank 0 has a weight of one half as well."),
            (
                (1.55, 1.65),
                "That gives rank 0 the weight of 5 targets and rank 1 that of 15, the wrong way "
                "round; an average of averages gives one half to each.",
            ),
        ],
        "times |θ| that rank 0 sends in a step, first form, 4 ranks": [
            (1, "1 is what every other rank sends: rank 0 sends the network to three ranks."),
            (1.5, "1.5 is what a rank sends in a ring: here all copies leave from rank 0."),
            (2, "2 is what every other rank sends and takes in together."),
            (4, "4 counts a copy to itself: rank 0 has made the update and needs none."),
            (6, "6 counts what rank 0 takes in as well: it takes in 3 and sends 3."),
        ],
        "a step with one bucket, 4 ranks": [
            (
                (94, 96),
                "94.7 ms leaves communication out: a single bucket is full when backward is over, "
                "so nothing is left to hide it behind.",
            ),
            (
                (97, 102),
                "That pays for one message: a ring of 4 ranks takes 2(n-1) = 6 rounds, and each "
                "of them takes 5 ms and more.",
            ),
            ((109, 112), "That is the reduce-scatter alone: the all-gather takes as long again."),
            (
                (210, 222),
                "That counts the 24 messages one after another: in a round all four ranks send at "
                "the same time.",
            ),
            ((300, 312), "That is the naive step, seven all-reduces: one bucket takes one."),
            (
                (370, 420),
                "That is one rank with the whole batch: each of the four computes for a quarter "
                "of the time.",
            ),
        ],
        "a step with three buckets, 4 ranks": [
            (
                (94, 96),
                "94.7 ms hides all three all-reduces: the last bucket leaves when backward is "
                "over, and before that only 11.2 ms can hide the others.",
            ),
            (
                (96, 123),
                "Each bucket pays six latencies of its own, 30 ms: even the last one alone, for "
                "which nothing is left to hide behind, makes it 125 ms.",
            ),
            (
                (123, 129),
                "That pays for one all-reduce alone, as if the other two were hidden: they take "
                "61 ms, and 11.2 ms of backward are left to hide them behind.",
            ),
            ((140, 150), "That is two buckets: a third one pays six latencies more."),
            (
                (185.5, 190),
                "That hides nothing: the first two buckets travel while the first layer's "
                "backward takes its 11.2 ms.",
            ),
            ((300, 312), "That is the naive step, with seven all-reduces after backward."),
        ],
        "the step with three buckets, rank 2 twice as slow": [
            (
                (170, 180),
                "That is the step without a slow rank: a bucket is not whole before rank 2 has "
                "put its gradients in.",
            ),
            (
                (187, 191),
                "That is the time for which rank 2 computes: the last buckets come on top.",
            ),
            (
                (194, 204),
                "That spreads the delay over four ranks. Nobody can take work from rank 2, so all "
                "wait for the whole of it.",
            ),
            (
                (218, 225),
                "That is the step with one bucket: three take six latencies each.",
            ),
            (
                (340, 360),
                "That doubles the messages as well: only what rank 2 computes takes twice as long.",
            ),
        ],
        "speed-up of 16 ranks over 1, ring": [
            ((15.5, 16.5), "16 leaves communication out, which takes 152 ms of each step here."),
            (
                (11.5, 12.5),
                "12 keeps the three quarters of four ranks: the ratio of communication to "
                "computation is 1/3 there, and 6.4 on sixteen.",
            ),
            (
                (4.5, 8),
                "That lets the speed-up grow with the ranks: from 8 to 16 ranks computing takes "
                "24 ms less and communication 80 ms more.",
            ),
            (
                (2.9, 4.4),
                "That lets the speed-up level off. It falls: from 8 to 16 ranks computing takes "
                "24 ms less, and communication 80 ms more.",
            ),
            (
                (0, 1),
                "Below 1 sixteen ranks would be slower than one: a step takes 23.7 + 152 ms, and "
                "378.8 ms on one rank.",
            ),
        ],
        "speed-up of 8 ranks over 1, halving-doubling": [
            ((3.1, 3.25), "That is the ring, which takes 14 rounds: halving-doubling takes 6."),
            ((7.5, 8.5), "8 leaves communication out: six rounds take 30 ms and more."),
            (
                (5.75, 6.1),
                "That counts lg n = 3 rounds: halving takes 3, and doubling takes 3 more.",
            ),
            ((0, 3.1), "Fewer rounds with no more bytes cannot be slower than the ring."),
        ],
        "efficiency of weak scaling, 8 ranks, ring": [
            ((0, 1.01), "The unit is percent: 80 % is written as 80, not as 0.8."),
            ((99, 100.5), "100 % leaves communication out: the all-reduce takes 71.8 ms."),
            (
                (38, 41),
                "That is strong scaling, 3.18 of 8: now each rank computes for 378.8 ms, and not "
                "for an eighth of that.",
            ),
            ((74, 76.5), "That is strong scaling on 4 ranks: now each rank has a whole batch."),
            ((91, 94), "That is the all-reduce of 4 ranks: 8 take 14 rounds instead of 6."),
            ((100.6, ANY), "No rank trains more examples in a second than one rank alone."),
        ],
    },
    "04": {
        "gradients per second, synchronous server, one of 4 workers 3x slow": [
            (
                (66, 67.5),
                "That lets all four push every 60 ms: the server makes no update before rank 4 "
                "has pushed.",
            ),
            (
                (55, 56.5),
                "That lets every worker go at its own pace: here three of them wait for rank 4.",
            ),
            (
                (44, 45),
                "That takes the mean of the four times, 90 ms: a step takes the longest of them.",
            ),
            (
                (49.5, 50.5),
                "50 leaves rank 4 out: the server waits for it, and takes its gradient as well.",
            ),
            (
                (16, 17),
                "That is a single worker at 60 ms: four gradients come in each 180 ms.",
            ),
            (
                (5.4, 5.7),
                "That is how many updates the server makes: each is the mean of four gradients.",
            ),
        ],
        "gradients per second, asynchronous server, one of 4 workers 3x slow": [
            (
                (66, 67.5),
                "That lets all four push every 60 ms: rank 4 pushes every 180 ms.",
            ),
            (
                (21.5, 23),
                "That is the synchronous server: here nobody waits for rank 4.",
            ),
            (
                (49.5, 50.5),
                "50 leaves rank 4 out: its gradients come seldom, but they come.",
            ),
            (
                (44, 45),
                "That divides by the mean time, 90 ms. Add up the paces: 3/0.06 + 1/0.18.",
            ),
            (
                (16, 17.5),
                "That lets one worker compute at a time. The updates come one after another; the "
                "workers compute at the same time.",
            ),
        ],
        "gradients per second that count, synchronous server, 1 backup worker": [
            (
                (66, 67.5),
                "That counts four gradients each 60 ms: the fourth comes too late, and is dropped.",
            ),
            (
                (54.5, 56.5),
                "That counts the gradients of rank 4: they are pushed, and dropped.",
            ),
            (
                (21.5, 23),
                "That is the server that waits for all four: this one waits for three.",
            ),
            (
                (16, 17.5),
                "That is how many updates the server makes: each is the mean of three gradients.",
            ),
            (
                (47, 47.9),
                "That is the whole run with its end, at which the server waits for the last push "
                "of rank 4: as long as training goes on it is 50.",
            ),
        ],
        "test images of 8 and 9 misread, one backup worker": [
            ((0.9, 1), "The unit is percent: all of them are 100 %."),
            (
                (88, 92),
                "90 % is a guess among ten labels: this network has never been told of an 8 or a "
                "9, so it never guesses one.",
            ),
            (
                (0, 35),
                "That is a network that has learnt them: here each gradient of rank 4 comes too "
                "late, so no 8 and no 9 has moved a weight.",
            ),
            (
                (35, 87),
                "That would take some of the gradients of rank 4: all of them come too late.",
            ),
        ],
        "mean staleness, 4 asynchronous workers alike": [
            (
                0,
                "0 is the synchronous server: here three other gradients are applied between a "
                "worker's pull and its push.",
            ),
            (
                (1.4, 1.6),
                "1.5 is the mean of the first four gradients, 0, 1, 2 and 3: all weights are "
                "fresh then, and never again.",
            ),
            (1, "1 counts the last update alone: each of the other three makes one."),
            (2, "2 is one too few: each of the other three workers pushes once."),
            (4, "4 counts the worker's own update: its gradient is older by those of the others."),
            (
                (4.5, ANY),
                "While a worker computes, each of the other three pushes once, and no more.",
            ),
        ],
        "mean staleness, 4 asynchronous workers, one 3x slow": [
            (
                (8.5, 9.5),
                "9 is rank 4 alone: the others' gradients are 7/3 updates old, and there are nine "
                "times as many of them.",
            ),
            (
                (2.2, 2.45),
                "7/3 are the three fast workers: of ten gradients one is of rank 4, and 9 old.",
            ),
            (
                4,
                "4 is the mean over the workers: rank 4 makes one of ten gradients, not one of "
                "four.",
            ),
            (
                (4.5, 8),
                "The gradients of rank 4 get older; those of the others get younger by as much, "
                "since rank 4 pushes seldom.",
            ),
            (
                (0, 2),
                "Three gradients of others are in flight at any time, and each update makes all "
                "of them one older.",
            ),
        ],
        "a clock with s = 3, one of 4 workers always 3x slow": [
            (
                (58, 62),
                "60 ms is a fast worker: after three clocks it has no slack left, and waits.",
            ),
            (
                (70, 74),
                "That is the asynchronous server, s = ∞: with s = 3 the slack is used up after "
                "half a second.",
            ),
            (
                (88, 92),
                "That takes the mean of the four times: nobody takes work from rank 4.",
            ),
            (
                (43, 47),
                "That divides the 180 ms by s + 1: slack is used up once, not in every clock.",
            ),
            (
                (100, 170),
                "That is the beginning, where the fast workers use up their slack: then each "
                "clock waits for rank 4.",
            ),
        ],
        "a clock with s = 0, each gradient 3x slow with probability 1/10": [
            (
                (71, 73),
                "72 ms is the mean of one worker: a clock takes as long as the slowest of four.",
            ),
            (
                (58, 62),
                "60 ms would be a clock without a slow worker: that is 0.9⁴ = 66 % of them.",
            ),
            (
                (178, 182),
                "180 ms is a clock with a slow worker: that is 1 - 0.9⁴ = 34 % of them.",
            ),
            (
                (88, 92),
                "90 ms would be one worker in four slow at any time: it is one gradient in ten.",
            ),
            (
                (107, 109),
                "That adds up four times 1/10: two workers are sometimes slow in the same clock, "
                "so it is 1 - 0.9⁴ = 0.34 and not 0.4.",
            ),
        ],
        "increments lost of 4 x 10,000, no lock, ranks pinned to cores": [
            (
                0,
                "An increment is a read, an addition and a write: another rank can write between "
                "them, and what it wrote is overwritten.",
            ),
            (
                (1, 3000),
                "That would hold if increments were rare. These ranks do nothing else, so each "
                "increment of one meets one of another.",
            ),
            (
                (29_900, 30_100),
                "That keeps the increments of one rank alone. Ranks do not run in step, so what is "
                "lost depends on who is interrupted when.",
            ),
            (
                (39_000, ANY),
                "What is written last stays, and a rank that runs alone for a moment loses "
                "nothing.",
            ),
        ],
        "synchronous EASGD, 4 workers, rate 0.5, curvature 1: largest α": [
            (
                (0.84, 0.88),
                "That is one worker, or one at a time: here four pull at the centre at once.",
            ),
            (
                (0.21, 0.22),
                "That is a quarter of one worker's 0.857: the centre then moves as far as with "
                "one worker, but each worker moves less, so there is room.",
            ),
            (
                0.25,
                "At 1/4 the centre moves to the workers' mean in one step. It may overshoot, as "
                "long as the springs take it back.",
            ),
            (
                0.5,
                "At 1/2 the centre lands as far beyond the workers' mean as it was before it; "
                "the workers have moved as well, so it swings further and further.",
            ),
            (
                (0.9, ANY),
                "A share of 1 closes the whole distance to one worker: with four the centre moves "
                "by four times the share.",
            ),
        ],
        "rounds of gossip to 1 % disagreement, ring of 8": [
            (
                4,
                "After 4 rounds each rank has heard of every other, but most of what it holds is "
                "still of its neighbourhood.",
            ),
            (
                (2.9, 3.1),
                "3 = lg 8 rounds are a butterfly, whose partners are farther away each round: "
                "here they are always the two neighbours.",
            ),
            (
                (6.9, 8.1),
                "That is once round the ring. A number that comes past is averaged with others, "
                "not handed on.",
            ),
            (
                14,
                "14 = 2(n-1) rounds are a ring all-reduce, which hands on sums: gossip forgets "
                "the difference bit by bit.",
            ),
            (
                (10, 12),
                "That is 1 % of the mean square: of the disagreement itself it takes twice as "
                "many rounds.",
            ),
            (
                (40, ANY),
                "A round leaves 80.5 % of the disagreement: 0.805²² is below 1 %.",
            ),
        ],
        "time to a loss of 1.8, synchronous over asynchronous, one worker 3x slow": [
            (
                (2.4, 2.6),
                "That counts examples per second alone: by stale gradients it takes more examples "
                "to the same loss.",
            ),
            (
                (0.98, 1.02),
                "That lets staleness cost as much as the waiting does: gradients that are three "
                "updates old still lead downhill.",
            ),
            (
                (0.1, 0.9),
                "For that stale gradients would have to need more than 2.5 times as many examples.",
            ),
            (
                (2.7, ANY),
                "It takes in 2.5 times as many examples, and no example does more for being used "
                "at old weights.",
            ),
        ],
    },
    "06": {
        "speed-up of 2 ranks, halves in sequence": [
            (
                (1.9, 2.1),
                "2 would need both ranks to compute at the same time: rank 1 waits for the "
                "activations of rank 0, and rank 0 for their gradient.",
            ),
            (
                (1.1, 1.9),
                "That needs several microbatches, one behind the other: here the whole batch goes "
                "from rank to rank at once.",
            ),
            (
                (0.4, 0.6),
                "Each rank computes half of the layers: one half after the other takes as long as "
                "both on one rank.",
            ),
            ((2.2, ANY), "Two ranks are at most twice as fast as one."),
        ],
        "speed-up of 2 ranks, halves side by side": [
            (
                (0.95, 1.05),
                "1 is the chain: a branch does not wait for the output of the other.",
            ),
            (
                (1.1, 1.85),
                "That leaves time for messages or for waiting: the branches are equal, and "
                "messages take no time here.",
            ),
            ((0.4, 0.6), "Each rank computes half of the products, at the same time."),
            ((2.2, ANY), "Two ranks are at most twice as fast as one."),
        ],
        "bytes that an LSTM keeps, 40 time steps over 20": [
            (
                (0.95, 1.05),
                "1 is right for the weights, which all time steps share: each step keeps results "
                "of its own for the backward.",
            ),
            (
                (1.1, 1.7),
                "Weights do not count here: all that is kept belongs to some time step.",
            ),
            (
                (3.8, 4.2),
                "4 is a square: each time step keeps as much as any other, and none keeps pairs.",
            ),
            (
                (19, 41),
                "Those are the time steps themselves: the question is how many times as many "
                "bytes.",
            ),
        ],
        "bytes a rank of 4 sends, partition output, B = 64, 512 to 2048": [
            (
                98_304,
                "98,304 leaves out the 2 of an all-reduce: it adds up, and then it copies.",
            ),
            (
                262_144,
                "262,144 is the whole all-reduce: a rank sends (n-1)/n = 3/4 of it.",
            ),
            (
                786_432,
                "786,432 all-reduces Y: here each rank has columns of Y for itself, and summands "
                "of the gradient of X.",
            ),
            (
                393_216,
                "393,216 counts an all-reduce in each direction: in the forward nothing is sent, "
                "since X is whole on all ranks.",
            ),
            (49_152, "Those are elements: each of them has 4 bytes in float32."),
            (
                6_291_456,
                "That is data parallelism: here no other rank has a gradient of the same columns "
                "of W.",
            ),
            (
                0,
                "0 is right for the forward: in the backward each rank knows a summand of the "
                "gradient of X.",
            ),
        ],
        "bytes a rank of 4 sends, reduce output, B = 64, 512 to 2048": [
            (
                196_608,
                "196,608 is what partition output sends, and the number of elements here: each of "
                "them has 4 bytes.",
            ),
            (
                393_216,
                "393,216 leaves out the 2 of an all-reduce: it adds up, and then it copies.",
            ),
            (
                1_048_576,
                "1,048,576 is the whole all-reduce: a rank sends (n-1)/n = 3/4 of it.",
            ),
            (
                1_572_864,
                "1,572,864 counts an all-reduce in each direction: in the backward each rank knows "
                "all there is to know about its columns of X.",
            ),
            (
                6_291_456,
                "That is data parallelism: here no other rank has a gradient of the same rows of "
                "W.",
            ),
            (0, "0 is right for the backward: in the forward each rank has a summand of Y."),
        ],
        "B from which data parallelism beats partition output, 512 to 2048": [
            (
                512,
                "512 is C_in, from which on data parallelism beats reduce output. Set 2·B·C_in "
                "equal to 2·C_in·C_out.",
            ),
            (
                1024,
                "1,024 has a factor of 2 on one side alone: both all-reduces have it.",
            ),
            (
                4096,
                "4,096 has a factor of 2 on one side alone: both all-reduces have it.",
            ),
            (64, "64 is the batch of the example: there partition output sends far less."),
            (
                8192,
                "8,192 is 4 · C_out: the number of ranks is in both counts, and cancels.",
            ),
        ],
        "collectives of a naive MLP, forward and backward": [
            (
                2,
                "2 are those of the forward: in the backward the gradient of the input of each "
                "product is a sum over the ranks.",
            ),
            (
                3,
                "3 leaves out one gradient: the MLP's own input needs one as well, for what lies "
                "below.",
            ),
            (
                6,
                "6 would also send gradients of the weights: each rank has its columns for itself.",
            ),
            (1, "1 is enough for neither direction: each product is gathered."),
            (8, "8 counts two for each product and direction: one is enough."),
        ],
        "all-reduces of a column-row MLP, forward and backward": [
            (
                1,
                "1 is the forward, or the backward: f sums in the one, g in the other.",
            ),
            (
                4,
                "4 is the naive way: between the two products nothing has to be sent.",
            ),
            (
                0,
                "0 leaves each rank with a summand of Y, and of the gradient of X.",
            ),
            (
                3,
                "3 sums once in one direction and twice in the other: both are alike, one at the "
                "end of each.",
            ),
        ],
        "bytes sent in a forward, with sequence parallelism over without": [
            (
                (0.24, 0.26),
                "A quarter of the tokens lies on each rank, but before the products all ranks "
                "need all tokens.",
            ),
            (
                (0.49, 0.51),
                "1/2 is the all-gather alone, or the reduce-scatter: an all-reduce is both.",
            ),
            (
                (1.9, 2.1),
                "2 takes an all-gather for as much as an all-reduce: it sends half as much.",
            ),
            (
                (1.4, 1.6),
                "1.5 is the backward, in which some tokens are gathered a second time.",
            ),
            (0, "0 would be right if nobody needed the tokens of others: the products do."),
        ],
        "kept with tensor parallelism over 4 ranks, 54 on one": [
            (
                13.5,
                "13.5 divides everything by 4: 10 of the 34 lie between the products, whole on "
                "every rank.",
            ),
            (
                11,
                "11 leaves out the 10 that lie between the products, whole on every rank.",
            ),
            (
                28.5,
                "28.5 leaves the softmax whole: its heads are cut as well.",
            ),
            (54, "54 is the whole layer: what lies inside attention and MLP is cut."),
            (
                39.4,
                "39.4 is what is counted in 32 bits: the published count has 16 bits.",
            ),
        ],
        "GFLOP/s of a sixteenth of the columns over those of all": [
            ((0.01, 1.2), "The unit is percent: half of them is written as 50, not as 0.5."),
            (
                (6, 6.5),
                "6.25 % is the share of the FLOPs: the question is how many FLOPs are done in a "
                "second.",
            ),
            (
                lambda measured: (7, 0.8 * measured),
                "A core is busy with little work: even a sixteenth of the columns takes 8.4 "
                "million FLOPs.",
            ),
            (
                lambda measured: (1.25 * measured, 250),
                "Beginning and ending a product takes a time that does not shrink with its "
                "columns.",
            ),
            ((1000, ANY), "The product has a sixteenth of the FLOPs, not a sixteenth of the time."),
        ],
        "speed-up of an MLP on 8 ranks, slow link": [
            (
                (7.5, 8.5),
                "8 leaves the messages out: two all-reduces of 14 rounds each take 130 ms.",
            ),
            (
                (3.4, 3.55),
                "That counts one all-reduce: the forward has one, and the backward has one.",
            ),
            (
                (2.4, 2.5),
                "That is 4 ranks: on 8 each all-reduce takes 14 rounds instead of 6.",
            ),
            (
                (0, 1.05),
                "Eight ranks compute for 50 ms and communicate for 130 ms: that is less than the "
                "400 ms of one.",
            ),
        ],
        "words a rank receives, 512 x 512 matrices on a grid (2, 2, 2)": [
            (131_072, "131,072 is the best 2D grid: cuts of all three dimensions move less."),
            (
                65_536,
                "65,536 counts X and W alone: the parts of Y are added up over the cut of k.",
            ),
            (
                196_608,
                "196,608 counts three whole blocks: half of each is the rank's own already.",
            ),
            (32_768, "32,768 is one of the three matrices: X, W and Y all move."),
            (393_216, "Those are bytes: a word is an element, which has 4 of them."),
        ],
    },
    "09": {
        "speed-up of 8 devices, one microbatch at a time": [
            (
                (7.5, 8.5),
                "8 needs all devices at work at the same time: here one works, and the other "
                "seven wait for it.",
            ),
            (
                (4.1, 4.4),
                "That is GPipe, where a stage goes on to the next microbatch at once: here the "
                "next one enters only when the one before is back.",
            ),
            (
                (1.1, 7.5),
                "Devices overlap only where a second microbatch is under way: here the next one "
                "enters when the one before is back.",
            ),
            (
                0.125,
                "Each device does its own eighth of the work, one after the other: together that "
                "takes as long as one device, not eight times as long.",
            ),
        ],
        "speed-up of 8 devices, GPipe with 8 microbatches": [
            ((7.5, 8.5), "8 leaves out that the pipeline has to fill and to drain."),
            (
                (5.9, 6.4),
                "That counts the filling, 7 forwards, and leaves out the draining, 7 backwards.",
            ),
            (
                (4.9, 5.2),
                "That counts the draining, 7 backwards, and leaves out the filling, 7 forwards.",
            ),
            ((3.6, 3.85), "That is how many devices are idle, on average; the others work."),
            (
                1,
                "1 would hold without overlap; or it takes idle / busy = 7/8 for the idle part of "
                "all the time, which is 7/15.",
            ),
        ],
        "microbatches for a bubble ratio of 0.1, 8 devices": [
            (80, "80 takes p for p-1: a rank stands still for 7 of the 8 stages, its own is work."),
            (
                63,
                "63 makes the idle time a tenth of all the time (the bubble fraction): the "
                "question compares it with the time at work.",
            ),
            (10, "10 leaves p-1 = 7 out: that would do for two devices."),
            ((7, 8), "With as many microbatches as devices the ratio is 7/8, nearly all idle."),
            ((11, 60), "The ratio is 7/m: it falls more slowly than one expects."),
        ],
        "microbatches held by rank 0, 1F1B, 4 ranks, 16 microbatches": [
            (16, "16 is GPipe, whose backwards come after the last forward."),
            (3, "3 is the warm-up: one more forward follows before the first backward."),
            (1, "1 is the last rank, which runs each backward right after its forward."),
            (
                5,
                "5 takes p = 4 forwards as the warm-up and one more: rank 0 has p-1 = 3 ranks "
                "behind it, so 3.",
            ),
            (
                (7, 8),
                "That is about 2p-1 = 7, a forward for each rank on the way there and back. 1F1B "
                "lets rank 0 wait on the way back, and holds no more than p.",
            ),
        ],
        "messages, interleaved, 4 ranks, 2 chunks, 8 microbatches": [
            (48, "48 is without chunks: now a microbatch passes every rank twice."),
            (
                96,
                "96 doubles the 3 borders. There is one more, from the last rank back to the "
                "first: 8 stages have 7 borders.",
            ),
            (56, "56 is one way: gradients cross each of the 7 borders as well."),
            (128, "128 counts 8 borders: 8 stages have 7."),
        ],
    },
    "09b": {
        "updates between forward and backward, rank 0 of 4, PipeDream": [
            (0, "0 holds with a flush, and for the last rank: rank 0 goes on meanwhile."),
            (
                1,
                "1 is rank 2, one place before the last: rank 0 has three ranks behind it, and "
                "makes an update for each of the microbatches that they return.",
            ),
            (
                4,
                "4 is the number of versions of its weights that rank 0 keeps: the newest is one "
                "of them, so it is 3 updates ahead of the oldest.",
            ),
            (
                6,
                "6 counts three ranks there and three back. Rank 0 makes one update for each "
                "microbatch that is in flight before this one, and these are 3.",
            ),
            ((15, 16), "That is all microbatches: only those in flight come between."),
        ],
        "bubble ratio of ZB-H1, 4 ranks, 8 microbatches": [
            (
                0,
                "0 takes more memory, as in ZB-H2: with that of 1F1B rank 0 cannot start forwards "
                "enough to fill the time until the first gradient is back.",
            ),
            (
                0.25,
                "0.25 takes W out of the bubble once. It goes twice: the ranks behind send I on "
                "before their W, and a rank fills what is left of its wait with W of its own.",
            ),
            ((0.1875, 0.19), "That is two interleaved chunks: half the bubble, not a third."),
            (
                (0.109, 0.113),
                "That is the bubble fraction, idle / all: the ratio is idle / busy.",
            ),
            (
                (0.34, ANY),
                "That is 1F1B or worse: half of each backward, W, now fills what was idle.",
            ),
        ],
    },
    "10": {
        "rank with which rank 5 averages its gradients, mesh 2 x 2 x 2": [
            (
                4,
                "4 shares every layer of rank 5: it holds the other columns, whose gradients are "
                "its own.",
            ),
            (
                7,
                "7 has the other stage of rank 5's replica: its gradients are those of other "
                "layers.",
            ),
            (6, "6 is the next number: the rank of the same stage and columns is 4 away."),
            (3, "3 differs from 5 in two axes: the dp group differs in dp alone."),
        ],
        "bytes a rank sends along tp in a step, layers alone, 2 x 2 x 2": [
            (
                524_288,
                "524,288 is the forward alone: the backward sums as many gradients of activations.",
            ),
            (
                2_097_152,
                "2,097,152 counts all four layers: a rank has two of them.",
            ),
            (
                262_144,
                "262,144 is one microbatch: a step has four of them.",
            ),
            (
                4_194_304,
                "4,194,304 is what all four ranks of a replica send: the question is about one "
                "rank.",
            ),
            (
                131_072,
                "131,072 is one all-reduce of each microbatch: each of two layers has four.",
            ),
        ],
        "bytes a rank of the first stage sends along pp in a step, 2 x 2 x 2": [
            (32_768, "32,768 is one microbatch: a step has four of them."),
            (
                262_144,
                "262,144 counts both directions: the gradients are sent by the second stage.",
            ),
            (
                65_536,
                "65,536 cuts the activations over tp: between layers they are whole on both ranks, "
                "and each sends all of them.",
            ),
            (
                524_288,
                "524,288 counts all 16 texts in each microbatch: one has 2 of them.",
            ),
        ],
        "KB a rank of the second stage sends along dp in a step, 2 x 2 x 2": [
            (
                849.4,
                "849 KB is the gradient of the whole model: a rank holds one of four parts.",
            ),
            (
                424.7,
                "425 KB is half of the model: pp and tp both cut it.",
            ),
            (
                106.2,
                "106 KB is an eighth of the model: dp does not cut it, a replica has four ranks.",
            ),
            (
                437,
                "437 KB would be two times what it holds: an all-reduce over n = 2 ranks sends "
                "2(n-1)/n = 1 times that.",
            ),
            (53.1, "53 thousand are the parameters: each has 4 bytes."),
        ],
        "step with tp between the racks over tp inside, 10 times slower link": [
            (
                (9.5, 10.5),
                "10 is the ratio of the links: the math takes as long in both placements, and the "
                "other placement also has an axis on the slow link.",
            ),
            (
                (0.9, 1.1),
                "1 would need messages that hide behind the math: ranks wait for each all-reduce "
                "of a layer.",
            ),
            (
                (4.5, 5.5),
                "That is the ratio of the bytes on the slow link: the math comes on top in both "
                "cases.",
            ),
            ((0.05, 0.9), "The axis that sends more is the worse one to have on the slow link."),
        ],
        "share of the microbatches' bytes that scatter and gather save, tp = 2": [
            (
                0,
                "0 would be right if each rank of a tp group had a part: between layers both have "
                "the same activations.",
            ),
            (0.5, "The unit is percent: half of them is written as 50, not as 0.5."),
            (
                100,
                "100 % would leave the next stage without input: one copy has to cross.",
            ),
            (75, "75 % is what four ranks would save, 1 - 1/t: t is 2 here."),
            (25, "25 % is half of the half: of two equal copies one is saved."),
        ],
        "bubble ratio of the 2 x 2 x 2 step, 4 microbatches": [
            (
                0.2,
                "0.2 is the bubble fraction, idle over all time: the ratio is idle over busy.",
            ),
            (
                (0.48, 0.52),
                "0.5 counts both replicas: each has a pipeline of its own, and both are idle at "
                "the same time.",
            ),
            (
                (0.7, 1.8),
                "That takes all ranks for stages: the pipeline has 2 of them.",
            ),
            ((0.12, 0.13), "An eighth would need m = 8: a replica has 4 microbatches."),
            ((20, 30), "The ratio is a plain number: 25 % is written as 0.25."),
        ],
        "share of the weights that rank 0 holds, pp = 2, tp = 2": [
            (
                25,
                "25 % would need four parts without overlap: norms, some biases, positions and the "
                "embedding lie on several ranks.",
            ),
            (
                12.5,
                "12.5 % cuts the weights over dp as well: replicas hold the same.",
            ),
            (50, "50 % is one cut: pp cuts between layers, and tp cuts each matrix."),
            (100, "100 % is data parallelism alone: pp and tp cut the model."),
            ((0.2, 0.3), "The unit is percent: a quarter is written as 25, not as 0.25."),
        ],
        "plans of 8 ranks for 4 layers and 4 heads": [
            (
                10,
                "10 are all ways to write 8 as dp · pp · tp: eight stages of four layers and "
                "eight parts of four heads are none.",
            ),
            (
                9,
                "9 leaves out one axis of 8: both pp = 8 and tp = 8 are impossible here.",
            ),
            (
                7,
                "7 leaves out one plan: dp = 8 alone is one, with the whole model on every rank.",
            ),
            ((3, 4), "Order counts: dp = 4, pp = 2 is another plan than dp = 2, pp = 4."),
            (1, "1 is the cube: axes of length 1 and 4 are plans as well."),
        ],
        "V100 of 32 GB that hold 16 bytes of each of 8.3 billion parameters": [
            (1, "1 holds the weights in 16 bits, 17 GB: gradients and Adam take 14 bytes more."),
            (2, "2 hold the weights in 32 bits: gradients and Adam's state come on top."),
            (4, "4 have 128 GB: 16 bytes of 8.3 billion parameters are 133 GB."),
            (
                (100, 600),
                "That many were used: they were needed for the time, and not for these bytes.",
            ),
        ],
    },
    "12": {
        "bytes of weights and updates in a round, 4 clients, MLP 64-32-10": [
            (38560, "38,560 is one way: the weights go out and the updates come back."),
            (
                19280,
                "19,280 is one client's, there and back: four take part in the round.",
            ),
            (9640, "9,640 is one message, 2,410 weights of 4 bytes: a round has eight of them."),
            (4820, "4,820 is one message with 2 bytes for each weight: float32 takes 4."),
            ((77, 78), "The unit is bytes: 77,120, where 77 would be kilobytes."),
            (
                694080,
                "That has a message for each of the 9 steps: a client sends once, after them.",
            ),
            (96400, "96,400 counts the server as a fifth client: it sends nothing to itself."),
        ],
        "share of a round in which client 0 trains, 4 clients": [
            ((0, 1), "The unit is percent: half of the round is written as 50, not as 0.5."),
            (
                (80, 100),
                "That has the messages of one client alone: all four go through the one link of "
                "the server, one after the other.",
            ),
            (
                (60, 80),
                "That leaves out the short messages, 10 ms each: a word to each client before the "
                "weights, and one after its update.",
            ),
            (
                (1, 40),
                "That waits too often: the clients train at the same time, while only messages "
                "come one after the other.",
            ),
        ],
        "rounds to 90 %, 10 clients, C = 0.5, E = 5, B = 10": [
            (
                (30, 45),
                "That divides 170 by the E = 5 epochs: each epoch has 15 steps here, of 10 digits "
                "each, in place of one.",
            ),
            (
                (150, 190),
                "As many rounds as before would mean that local steps bring nothing: with "
                "identical data each client's steps go where all want to go.",
            ),
            (
                (10, 20),
                "That has the steps of one epoch, 15: there are five epochs in a round.",
            ),
            ((191, ANY), "More local work does not hurt here: the data are identical."),
            (
                (0, 2.4),
                "75 steps a round would make 170 steps in 2.3 rounds. Steps on 10 digits are "
                "noisier than those on all, so a little more is needed.",
            ),
        ],
        "rounds to 90 %, two labels a client over identical data, E = 5, B = 10": [
            (
                1,
                "1 would be FedSGD, whose clients take one step: with 75 steps each drifts toward "
                "its own two labels.",
            ),
            (
                (1.5, 3),
                "Two labels of ten cost more than that: what one round learns of a label, the "
                "next, with other clients, forgets.",
            ),
            (
                5,
                "5 is ten labels over two: no round is lost for labels alone, but clients that "
                "were not asked are forgotten.",
            ),
            (
                (50, ANY),
                "It does get there: half of the clients are asked in a round, which together have "
                "most labels.",
            ),
        ],
        "rounds to 90 %, FedSGD, C = 1, two labels a client over identical data": [
            (
                (1.2, 5),
                "Drift needs a second local step. One step on the whole data is a gradient, and "
                "the weighted mean of the clients' gradients is that of all digits.",
            ),
            (
                (5, 30),
                "That is FedAvg's factor: in FedSGD no client moves before all have been heard.",
            ),
            ((30, ANY), "The same digits are in the mean, dealt out in another way."),
            (
                (0, 0.9),
                "It cannot be faster either: each round takes the very step that it takes with "
                "identical data.",
            ),
        ],
        "test images of 8 and 9 read, deadline that drops their clients": [
            (
                10,
                "10 % would be a guess among ten labels: a network that was never told of an 8 "
                "learns not to answer 8.",
            ),
            (
                (60, 100),
                "No other client has an 8 or a 9, and an update that is dropped teaches nothing.",
            ),
            (
                (20, 60),
                "The slow clients are late in every round, not now and then: none of their updates "
                "is ever in the weights.",
            ),
            (
                (1, 9),
                "Not even a few: the network sees no 8 or 9 in any round, and every gradient says "
                "that these answers are wrong.",
            ),
        ],
        "digits read, 20 clients with one digit each, E = 5": [
            (
                0,
                "0 would need the five steps to mix something: each adds a multiple of the same "
                "digit to ΔW, and the same multiple of 1 to Δb.",
            ),
            (
                4,
                "4 is a fifth of twenty: the steps of five epochs add up, and their ratio is the "
                "digit again.",
            ),
            (100, "The question asks for digits: all of them are 20."),
            (
                (5, 19),
                "Each client has one digit, alone in its batch: what reads one of them reads all.",
            ),
        ],
        "digits read, 20 clients with one digit each, clipped to 0.001": [
            (
                0,
                "0 takes a short update for a faint one: ΔW and Δb are shortened by the same "
                "factor, and their ratio is the digit as before.",
            ),
            (100, "The question asks for digits: all of them are 20."),
            (
                (1, 9),
                "Nothing is lost in small numbers: a float has as many digits at 0.001 as at 1.",
            ),
            (
                (9.5, 19),
                "Clipping treats all updates alike: it divides all numbers of one by the same.",
            ),
        ],
        "digits read of a client's 16, one step": [
            (
                0,
                "0 takes each unit for a mixture: some of the 32 are switched on by one digit "
                "alone, and show it.",
            ),
            (
                1,
                "1 is too few: among 32 units more than one have a digit to themselves.",
            ),
            (
                16,
                "All 16 would need a unit each that no other digit switches on: most units are "
                "switched on by several.",
            ),
            (
                (3.5, 15),
                "Most units are switched on by a fifth of all digits or more: only those that few "
                "digits switch on show one alone.",
            ),
            (32, "32 is the number of units: several of them show the same digit or a mixture."),
        ],
        "bytes that a secure sum adds to a client's update, n = 8": [
            (
                0,
                "0 is true of the masked vector, which is as long as the update: keys and sealed "
                "shares come on top.",
            ),
            (
                (1.5, 2.5),
                "That is 179 bytes over 9,640, for one client: there are shares for all 8.",
            ),
            (
                (14.5, 15.2),
                "That leaves out the 148 bytes that do not grow with n, and the terms.",
            ),
            (
                100,
                "100 % would send a mask too: both clients make theirs from a key.",
            ),
            (
                (300, 400),
                "That takes each of the four exchanges for an update: only one carries the vector.",
            ),
            (
                (600, 900),
                "That sends a mask to each of the other clients: two clients make the same mask, "
                "each from its own key and the other's public one.",
            ),
        ],
        "epsilon of 40 rounds, q = 0.1, sigma halved from 2 to 1": [
            (
                (0.8, 0.85),
                "That is half: less noise hides less, and a larger ε means less privacy.",
            ),
            (1.66, "1.66 is with σ = 2: less noise hides less of a client."),
            (
                (3.2, 3.4),
                "Twice the ε would be a price in proportion: what a round tells of a client grows "
                "about with the square of 1/σ.",
            ),
            (
                (6.5, 6.8),
                "Four times is how the divergence of a round grows, with the square of 1/σ: ε has "
                "a part for δ beside it, which grows less.",
            ),
        ],
        "test digits read, mean, one of 10 clients sends its update times -10": [
            (
                (85, 100),
                "Nine honest clients outvote one where each has one vote. In a mean this one has "
                "ten: nine times Δ and once -10 Δ make -Δ/10.",
            ),
            (
                (40, 85),
                "That only slows training down. The mean is -Δ/10: each round goes uphill, so more "
                "rounds do not mend it.",
            ),
            ((0, 1), "The unit is percent: a tenth is written as 10, not as 0.1."),
            (
                (1, 5),
                "Weights that are driven uphill soon give one answer to every image, and one label "
                "of ten is a tenth of the images.",
            ),
            ((100.1, ANY), "A share of the images is at most 100 %."),
        ],
        "rules of 4 that read 80 % with 4 attackers among 10 clients": [
            (
                4,
                "The mean does not even bear one attacker: it is a sum, and four can outweigh six.",
            ),
            (
                3,
                "Krum bears f attackers among 2f + 3 clients or more: ten clients bear three.",
            ),
            (
                1,
                "Without the four smallest and the four largest of ten values the middle two are "
                "left, and their mean is the median: these two rules stand or fall together.",
            ),
            (
                0,
                "Six honest clients of ten are a majority, so the middle of the values of each "
                "parameter lies among theirs.",
            ),
        ],
        "test digits read, Krum, two labels a client, no attacker": [
            (
                (70, 100),
                "That would be the mean's. Krum takes the update of one client, and throws nine "
                "others out, honest or not.",
            ),
            (
                (25, 70),
                "That would need other clients in other rounds. Krum takes the same one in every "
                "round: the network knows its labels, so its updates are short and near to all.",
            ),
            (10, "10 % would be a guess among ten labels: each client has two of them."),
            ((0, 1), "The unit is percent: a fifth is written as 20, not as 0.2."),
        ],
    },
    "ring_all_reduce": {
        "bytes that a rank sends, 4 ranks, 96 bytes each": [
            (288, "288 sends the whole tensor to the three others: a ring sends chunks."),
            (72, "72 is the reduce-scatter alone: the all-gather sends as much again."),
            (96, "96 is each chunk once: a rank sends 3 chunks, and then 3 once more."),
            (192, "192 counts n = 4 rounds for each half: n-1 = 3 are enough."),
            (24, "24 is one chunk: a rank sends one in each of the 6 rounds."),
            (576, "576 is what all four ranks send together."),
        ],
        "the chunk that is whole on rank 0 after reduce-scatter, 4 ranks": [
            (
                0,
                "Chunk 0 leaves rank 0 in the first round. After three rounds it is whole on the "
                "last rank that it comes to, rank 3.",
            ),
            (
                3,
                "Chunk 3 is the first that comes to rank 0, from rank 3, with two ranks still to "
                "pass: it ends on rank 2.",
            ),
            (2, "Chunk 2 comes to rank 0 in the second round and goes on: it ends on rank 1."),
            (4, "Chunks are numbered from 0, so the last of four is chunk 3."),
        ],
    },
    "ddp": {
        "mean gradient: 3 examples with the gradient 2, 1 example with 6": [
            (
                4,
                "4 is the mean of the two means: rank 1's one example counts as much as three.",
            ),
            (8, "8 is the sum of the two means: with more ranks it would grow."),
            (12, "12 is the sum over all 4 examples: the mean is a quarter of it."),
            (1.5, "1.5 is the mean, divided by the 2 ranks once more."),
            (6, "6 is rank 1's gradient, or the sum over the examples divided by the 2 ranks."),
            (2, "2 is the gradient of most examples: rank 1's example counts too."),
        ],
        "buckets of at most 72 bytes, gradients of 32, 56, 24, 48, 16 bytes": [
            (
                3,
                "176 bytes would need three buckets if gradients could be cut: one that does not "
                "fit goes into the next bucket whole.",
            ),
            (
                2,
                "2 lets a bucket go over its bytes by the gradient that fills it: the gradient "
                "that does not fit begins the next one.",
            ),
            (5, "5 is a bucket for each parameter: 16 and 48 bytes fit into one of 72."),
            (1, "1 is a single bucket: it would be full only when backward is over."),
        ],
        "a DDP step with three buckets, 4 ranks": [
            (
                (88, 92),
                "90 ms hides all communication: the last bucket is full when backward is over, so "
                "no backward is left to hide it behind.",
            ),
            (
                (140, 150),
                "144 ms lets all three all-reduces come after backward: the first two are under "
                "way while it goes on.",
            ),
            (
                126,
                "126 ms hides one bucket: the second takes 18 ms too, and the two layers that are "
                "left then take 20 ms.",
            ),
            (
                (75, 80),
                "That leaves out the forward, which takes 30 ms: backward and the last bucket take "
                "78 ms.",
            ),
            (
                (50, 87),
                "The ranks compute for 90 ms. Communication can hide behind that; it cannot "
                "shorten it.",
            ),
        ],
    },
    "parameter_server": {
        "weight 10, updated by 1 and by 2 under the lock": [
            (
                8,
                "8 is the copy of the second worker, moved: it overwrites the first one's update.",
            ),
            (
                9,
                "9 is the first worker's update alone: the second one is made to the weight as "
                "the first has left it.",
            ),
            (8.5, "8.5 takes the mean of both updates: here each of them is made in full."),
            (13, "13 goes against the gradient: an update is subtracted."),
            (10, "10 has no update: the lock makes one worker wait for the other, no more."),
        ],
        "staleness of most gradients, 4 workers equally fast, no bound": [
            (
                0,
                "0 is synchronous training: here the others update while a worker computes.",
            ),
            (
                4,
                "4 counts the worker's own update: those of the 3 others come between its pull "
                "and its push.",
            ),
            (
                1,
                "1 counts one worker: each of the 3 others makes an update while one computes.",
            ),
            (
                (1.4, 2.1),
                "That is the mean of the first round, 0 to 3: from then on all 3 others make an "
                "update between a worker's pull and its push.",
            ),
        ],
        "6 gradients each, bound 1, one of 3 workers 3 times as slow": [
            (
                (110, 118),
                "That is how long the fast workers take when they are not held: the run ends with "
                "the slow one, which takes 45 ms for a gradient.",
            ),
            (
                270,
                "270 ms are the slow worker's gradients alone: push, update and answer take 4 ms "
                "more each time.",
            ),
            (
                (170, 178),
                "That shares the work as if a gradient took 25 ms, the mean: each worker has 6 of "
                "its own.",
            ),
            (
                (332, 350),
                "That has one push after another, 18 times 19 ms: the workers compute at the same "
                "time.",
            ),
            (
                (510, 530),
                "That lets the workers take turns: they compute at the same time.",
            ),
        ],
    },
    "tensor_parallel_mlp": {
        "numbers that a rank holds, MLP 16-32-16, 4 ranks": [
            (1072, "1072 is the whole MLP: each rank has a quarter of each weight matrix."),
            (
                268,
                "268 is a quarter of all numbers: down.bias is not cut, each rank has its 16.",
            ),
            (264, "264 leaves out down.bias, which is whole on each rank: 16 numbers more."),
            (256, "256 are the weights: up's part of the bias and all of down's come on top."),
            (
                664,
                "664 cuts up alone: down is cut too, by the rows that belong to a rank's columns.",
            ),
            (128, "128 is the part of one matrix: there are two, and the biases."),
        ],
        "all-reduces in a step of a tensor-parallel MLP": [
            (
                1,
                "1 is the forward alone: x goes to the columns of all ranks, so the ranks' "
                "gradients of x have to be added too.",
            ),
            (
                4,
                "4 adds or gathers after each layer: with columns first and rows next, a rank's "
                "columns of z are just what its rows of down need.",
            ),
            (
                3,
                "3 has one between the two layers, or two in backward: GELU gets whole columns, "
                "and the gradient of y is the same on every rank already.",
            ),
            (
                6,
                "6 is one for each product: most products need only what their rank has.",
            ),
            (0, "Without any, each rank would end with its share of y alone."),
        ],
        "bytes that a rank sends in a step, 4 rows, MLP 16-32-16, 4 ranks": [
            (768, "768 is one direction: backward sends as much for the gradient of x."),
            (3072, "3072 is two all-reduces each way: one is enough."),
            (
                1024,
                "1024 is y and the gradient of x once: an all-reduce sends 2(n-1)/n times as much.",
            ),
            (512, "512 is y itself: a rank sends 1.5 times that, each way."),
            (6144, "6144 is what all four ranks send: the question asks for one."),
            (192, "192 is the number of numbers: each takes 8 bytes."),
            (
                2304,
                "2304 has three all-reduces of a tensor as y: there is one each way.",
            ),
        ],
        "a step of the MLP on 4 ranks, 96 ms on one": [
            (
                24,
                "24 ms leaves out the two all-reduces: all ranks wait until they are over.",
            ),
            (30, "30 ms pays for one all-reduce: there is one in backward too."),
            (
                (25, 29),
                "An all-reduce on 4 ranks takes 6 rounds of 1 ms one after another, and there are "
                "two all-reduces.",
            ),
            (
                48,
                "48 ms pays for four all-reduces: there is one each way.",
            ),
            (96, "96 ms is the step of one rank: four share each product."),
            ((0, 23.5), "The products alone take 96 / 4 = 24 ms."),
            ((40, 47), "There are two all-reduces of 6 ms, and nothing else is sent."),
        ],
    },
    "mesh_3d": {
        "rank with which rank 5 averages gradients, mesh dp=2, pp=2, tp=2": [
            (4, "Rank 4 differs on tp: it has other columns of the same layers."),
            (7, "Rank 7 differs on pp: it has other layers of the same replica."),
            (6, "Rank 6 differs on tp and on pp: it has copies of nothing that rank 5 has."),
            (5, "Rank 5 is this rank itself: the other replica has the copies of its weights."),
        ],
        "bytes that a rank sends along tp, 2x2x2, two blocks of 16-32-16, 8 x 8 tokens": [
            (8192, "8192 is one direction: f adds as much in backward as g does in forward."),
            (
                32768,
                "32768 is for both blocks: with two stages a rank has one of them.",
            ),
            (2048, "2048 is the number of numbers: each takes 8 bytes."),
            (4096, "4096 is half of the activations, once: two all-reduces send both halves."),
            (1024, "1024 is the number of activations: each takes 8 bytes, and goes twice."),
        ],
        "bytes that a rank sends along dp, 2x2x2, two blocks of 16-32-16, V = 48": [
            (4096, "4096 leaves out the embedding, which every rank has and averages."),
            (6144, "6144 is the embedding alone: a rank's part of its block comes on top."),
            (14336, "14336 has a whole block: of two ranks on tp each has half of it."),
            (
                18432,
                "18432 has both blocks in parts: with two stages a rank has one.",
            ),
            (20480, "20480 is what both ranks of the group send: the question asks for one."),
            (1280, "1280 is the number of parameters: each gradient takes 8 bytes."),
        ],
    },
    "fedavg": {
        "weight 2: 60 examples lead to 4, 20 to 0, and 20 to -1 too late": [
            (2, "2 counts both clients the same: client 1 has three times the examples."),
            (
                2.8,
                "2.8 divides by all 100 examples: client 3 did not answer in time, so n is 80.",
            ),
            (2.2, "2.2 counts client 3 too: what comes too late is thrown away."),
            (1, "1 is the mean of all three, each counted the same."),
            (
                5,
                "5 adds the clients' mean weight to the server's: what is added is their change.",
            ),
            (4, "4 is client 1's weight: client 2 has a quarter of the examples that count."),
        ],
        "bytes in a round, 4 clients, MLP 64-32-10, numbers of 8 bytes": [
            (77120, "77120 is one direction: weights go out, and as many numbers come back."),
            (38560, "38560 is one client, there and back: four take part."),
            (
                19280,
                "19280 is one message: in a round there are 8 messages of 2,410 numbers, of 8 "
                "bytes each.",
            ),
            (2410, "2410 is the number of weights: each takes 8 bytes, and goes 8 times."),
            (
                (0, 2400),
                "An MLP 64-32-10 has 64 x 32 + 32 + 32 x 10 + 10 weights, each of 8 bytes.",
            ),
        ],
        "4 rounds, deadline 40 ms, one of 4 clients 4 times as slow": [
            (
                160,
                "160 ms has each round last until the deadline: one in which client 4 is not "
                "asked is over when the others have answered.",
            ),
            (
                (325, 350),
                "That waits for client 4 in each round: the server goes on after 40 ms.",
            ),
            (
                (95, 103),
                "That never waits for client 4: when it is asked, the round lasts until the "
                "deadline.",
            ),
            (
                (110, 117),
                "That asks client 4 once: its update has come when the fourth round begins, so it "
                "is asked again.",
            ),
            (
                (119, 125),
                "That leaves out the messages, 1 ms each: the server takes one after another.",
            ),
            (80, "80 ms is the fast clients' work alone, or client 4's once."),
        ],
        "rounds to 90 %, 5 clients with two labels each": [
            (
                (7, 14),
                "So many take clients with all labels. With two each pulls the weights towards "
                "its own, and a mean undoes much of that.",
            ),
            (
                (0, 6.9),
                "Two labels are learnt sooner than ten, but the model has to know all ten, and no "
                "client teaches them.",
            ),
            (
                (15, 28),
                "It takes longer: a client unlearns in each round the labels that it does not "
                "have, and the mean undoes much of what it has learnt.",
            ),
            (
                lambda measured: (1.6 * measured, ANY),
                "The clients have all labels between them, and each mean mixes what they know: it "
                "takes long, and gets there.",
            ),
        ],
    },
    "one_f_one_b": {
        "microbatches in flight on rank 0, 1F1B, 4 ranks, 8 microbatches": [
            (8, "8 is GPipe, whose backwards come after the last forward."),
            (3, "3 is the warm-up: one more forward follows before the first backward."),
            (1, "1 is the last rank, which runs each backward right after its forward."),
            (
                5,
                "5 takes p = 4 forwards as the warm-up and one more: rank 0 has three ranks "
                "behind it, so 3.",
            ),
            (
                7,
                "7 is 2p-1, a forward for each rank on the way there and back. 1F1B lets rank 0 "
                "wait on the way back, and holds no more than p.",
            ),
        ],
        "bubble ratio of 1F1B, 4 ranks, 8 microbatches": [
            ((0.27, 0.276), "That is the bubble fraction, idle / all: the ratio is idle / busy."),
            (
                0.5,
                "0.5 takes p for p-1: a rank stands still for three of the four stages, its own "
                "is work.",
            ),
            (
                (0, 0.36),
                "1F1B saves memory and no time: the pipeline fills and drains as in GPipe, so the "
                "bubble is the same.",
            ),
            ((0.4, ANY), "The pipeline fills and drains as in GPipe: the bubble is the same."),
        ],
        "chunks in flight on rank 0, interleaved, 4 ranks, 8 microbatches, 2 chunks": [
            (4, "4 is 1F1B without chunks: now more forwards come before the first backward."),
            (
                8,
                "8 is what 1F1B holds, in halves: the first group has to come past rank 0 twice "
                "before it reaches the last stage, so there are more.",
            ),
            (10, "10 is the warm-up: one more forward follows before the first backward."),
            (
                7,
                "7 leaves out the (v-1)p = 4 forwards that bring the first group to its last "
                "stage.",
            ),
            (16, "16 is all of them, as in GPipe: backwards begin before the last forward."),
            (5.5, "5.5 counts whole microbatches: the question asks for chunks, half of one."),
        ],
    },
}


def behind(question: str, predicted: float, measured: float) -> str:
    """The misconception that leads to `predicted`, in a sentence; empty where none is known or the
    prediction is right."""
    if predicted == measured or 0 < predicted <= RIGHT * measured <= RIGHT**2 * predicted:
        return ""
    for guess, sentence in _entries(question):
        if callable(guess):
            guess = guess(measured)
        lower, upper = guess if isinstance(guess, tuple) else (0.99 * guess, 1.01 * guess)
        if lower <= predicted <= upper:
            return sentence
    return ""


def lab_of(question: str) -> str:
    """The lab or assignment that asks it: "00", "ring_all_reduce"; empty for any other question."""
    return next((lab for lab, asked in MISCONCEPTIONS.items() if question in asked), "")


def _entries(question: str) -> list[tuple[Guess, str]]:
    return MISCONCEPTIONS.get(lab_of(question), {}).get(question, [])
