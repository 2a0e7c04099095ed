"""The text of the chapter on CPU bandwidth control.

Paragraphs are Markdown with only code, emphasis and links, because a page shows them too.
``{name}`` is a number that is computed when the chapter is written.
"""

from typing import Final

TITLE: Final = "From one tick to the bill: CPU bandwidth control"

SUMMARY: Final = (
    "A cloud function with a tenth of a CPU does not run at a tenth of the speed. It runs at"
    " full speed, is stopped, and runs again; and the kernel that stops it looks at the clock"
    " only now and then. This chapter follows that from one timer tick to the bill."
)

QUOTA: Final = (
    "A fraction of a CPU is a *quota* of CPU time in each *period*. A control group with 6 ms"
    " in 20 ms (`cpu.max` of `6000 20000`; `cpu.cfs_quota_us` and `cpu.cfs_period_us` in"
    " version 1) has 0.3 vCPU. Its tasks run at full speed until the group has used the quota."
    " Then it is *throttled*: nothing in it runs until a timer refills the quota at the next"
    " period.",
    "In the chart a task needs 20 ms of CPU time; dotted lines are refills. Three things are"
    " worth trying. Change the share: at any share below 1 the task is done before CPU time"
    " over share says, since no wait follows its last run. Choose the longest period: from 0.2"
    " vCPU on the quota is all that the task needs, and a fraction of a CPU behaves like a"
    " whole one. Begin three quarters into a period: the task finds a whole quota, uses it, and"
    " is soon given the next.",
)

EQUATION: Final = (
    "If the quota were enforced to the nanosecond, a task that needs T and begins with a period"
    " would take d = (n - 1) P + T - (n - 1) Q, where n = ceil(T / Q) is the number of periods"
    " that it needs. That is Equation (2) of the cost paper (Lin, Ma, Shahrad: *Demystifying"
    " Serverless Costs on Public Platforms*, EuroSys 2026), with its two cases in one. `uncia"
    " cpu duration` computes it in whole nanoseconds.",
)

TICKS: Final = (
    "The kernel does not watch a running task. It counts what a task has used when it has"
    " another reason to run: at the timer tick (`task_tick_fair`, `entity_tick`), when the task"
    " sleeps, wakes or is replaced. Then `update_curr` tells `account_cfs_rq_runtime` how long"
    " the task ran, and only that function finds that nothing is left. A task that does nothing"
    " but compute meets the tick alone: every 4 ms at 250 Hz, every 1 ms at 1000 Hz.",
    "Take the smallest size of AWS Lambda: 128 of 1769 MB, 0.0724 vCPU, 1.447 ms in 20 ms. The"
    " task begins with 1.447 ms. At the next tick, 4 ms later, it has used 4 ms, and the"
    " balance is -2.553 ms: it is throttled with a *debt*. The refill at 20 ms brings it to"
    " -1.106 ms, which is not enough; that at 40 ms to +0.341 ms, and it runs on, again for a"
    " whole tick. This debt is larger, and takes three refills. So it goes on: runs of 4 ms,"
    " with waits of 36 or 56 ms between them. Over a long time it gets what it should; in its"
    " first 4 ms it got 2.8 times its quota.",
    "In the chart, above: when the task runs. Below: what is left of its runtime, which is the"
    " quota when a period begins and a debt when it is below zero. The balance is the sum of"
    " the refills since the start less what was used; the runs are those of Uncia's simulator.",
)

TICKS_AFTER: Final = (
    "More ticks a second make the overrun smaller, not the wait for the refill. And where the"
    " quota is a whole number of ticks and refills are at ticks there is no debt at all: at 8"
    " ms in 20 ms no profile can tell 250 Hz from 1000 Hz.",
    "On several CPUs there is a second lag. Each CPU takes runtime from the group's pool in"
    " slices of 5 ms (`assign_cfs_rq_runtime`, `sched_cfs_bandwidth_slice_us`) and pays from"
    " its own pocket. When its tasks sleep it gives back all but 1 ms"
    " (`return_cfs_rq_runtime`). What lies in the pockets of idle CPUs is not lost since 5.4,"
    " which removed its expiry, but nobody else can use it.",
)

KERNELS: Final = (
    "The rules of the quota are older than the scheduler that they are now part of, and changed"
    " little with it. What changed is when the quota is refilled, and who is stopped.",
)

KERNEL_ROWS: Final = (
    (
        "3.2 (2012)",
        "Quota and period for control groups",
        "`account_cfs_rq_runtime`, `throttle_cfs_rq`, `do_sched_cfs_period_timer`,"
        " `distribute_cfs_runtime`",
    ),
    (
        "5.4 (2019)",
        "Runtime that a CPU has taken from the pool no longer expires with the period",
        "`__refill_cfs_bandwidth_runtime`, `assign_cfs_rq_runtime`",
    ),
    (
        "5.14 (2021)",
        "What was not used may be kept for later, up to a burst",
        "`cpu.cfs_burst_us`, `cpu.max.burst`",
    ),
    (
        "6.4 (2023)",
        "Each group's timer has a random offset. Before, all refilled at whole multiples of the"
        " period since boot, which are ticks as well",
        "`init_cfs_bandwidth`, `start_cfs_bandwidth`",
    ),
    (
        "6.6 (2023)",
        "EEVDF chooses among tasks instead of CFS (the cost paper counts it from 6.8, which it"
        " measured). Accounting and throttling stay as they are",
        "`update_curr`, `entity_tick`",
    ),
    (
        "6.18 (2025)",
        "Tasks are stopped one by one, on their way back to user space, instead of the group's"
        " queue at once. In the kernel a task runs on, and the debt grows",
        "`throttle_cfs_rq_work`, `task_throttle_setup_work`, `tg_throttle_down`,"
        " `tg_unthrottle_up`",
    ),
)

KERNELS_AFTER: Final = (
    "The cost paper compares Linux 6.2 (CFS) with 6.8 (EEVDF) at 250 Hz and finds less overrun"
    " with EEVDF: 3.57 instead of 3.97 ms in a run. Our reading, which the source supports but"
    " which is not proven, is that the scheduler is not what differs. Before 6.4 a refill of a"
    " period of whole ticks coincides with a tick, so that a run lasts a whole tick, 4 ms."
    " Since then ticks fall anywhere between two refills, though for one group always at the"
    " same place. A run lasts from the refill to the first tick that finds the quota used up."
    " The chart shows both, as Uncia simulates them: one group, and 150 groups with an offset"
    " each. With the same offset the simulator gives a lone task that stays in user space the"
    " very same throttles under CFS and EEVDF, stopped by queue or by task.",
    "That groups differ on one kernel was measured: `uncia cpu profile` in six groups one after"
    " the other (Linux 6.18 at 250 Hz, a virtual machine of 2 CPUs, 4 s each) found median runs"
    " of 1.02, 1.04, 1.31, 1.38, 1.48 and 3.64 ms under the same quota of 1.447 ms in 20 ms,"
    " while all of them got a share between 0.070 and 0.072. So a profile of one group says"
    " little about the runs of the next, and much about its share.",
)

STEPS: Final = (
    "Now the size is changed. Over the memory of AWS Lambda, 1769 MB of which come with a whole"
    " vCPU, the duration does not follow the reciprocal of the share. It falls in steps: at the"
    " quotas T, T/2, T/3, ..., where the task needs one period less. For the function that the"
    " cost paper measured (PyAES, {pyaes} ms at full speed) they lie at {jumps} MB. The paper"
    " reads them off its Figure 10 at about 1400, 700, 470, 350 and 280 MB, which are the steps"
    " of a task of 15.8 ms: what is billed as duration holds more than the computation.",
    "At a step the duration falls by P - Q, the throttle that is no longer needed. That is so"
    " if the task begins with a period. A request comes at any time. Then the mean falls by (P"
    " - Q)²/P at the same sizes (by half of that at the first), and the rest becomes a slope:"
    " tasks that come late in a period each have a step elsewhere. Averaged over CPU times, a"
    " task takes P - Q less than the reciprocal says if it comes at any time, and half of that"
    " if it begins with a period. That is a property of the closed form, which Uncia's tests"
    " check.",
    "The lowest curve is the simulator's, which accounts at ticks. It lies lower because a task"
    " keeps what it overran in its last runs: it is done, and never pays the debt. The steps"
    " are rounder, and in other places, since a run is a whole number of ticks.",
)

STEPS_AFTER: Final = (
    "The closer the period is to what a task needs, the larger the steps; Figure 11 of the cost"
    " paper shows it for 51.8 ms, the mean CPU time of the requests in Huawei's trace, and six"
    " periods. A short period is nearly proportional. The price is a refill for each group and"
    " period.",
    "How close is this to a provider? On the published durations of AWS Lambda (185 sizes) the"
    " reciprocal is 25.8 % off on average, Equation (2) 13.6 %, and a simple model of ticks and"
    " debt 7.0 % (at the sizes for which it was computed). Most of the measured durations lie"
    " between the lowest curve and the reciprocal: a request also pays for what the sandbox"
    " does besides. `uncia cpu predict` takes that into account, and says how close it comes.",
)

PROFILES: Final = (
    "Nobody says how a provider has set its kernel, but a function can see it. The probe reads"
    " a monotonic clock in a loop and notes each jump of more than 0.5 ms (Algorithm 1 of the"
    " cost paper; `uncia cpu profile`). Each jump is a throttle, and gives three numbers: its"
    " length, the time since the throttle before it ended, and their difference, the CPU time"
    " obtained between them.",
    "The charts show their distributions as simulated, for the periods and tick rates that the"
    " cost paper found at three providers (Table 3). A throttle ends with a refill, so that the"
    " intervals are whole periods: that tells P. The CPU time obtained over the time that"
    " passed is the share, which gives Q. And where refills and ticks coincide, CPU time comes"
    " in whole ticks, which tells the tick rate, unless the quota is a whole number of ticks."
    " `uncia cpu infer` weighs this, and says *cannot tell* where a profile does not hold it.",
    "Published profiles of AWS Lambda at 128 MB have 24.9 % of their throttles at 36 ms and"
    " 74.9 % at 56 ms, 3.93 ms of CPU time in each run, and a share of 0.0716 against the"
    " nominal 0.0724: the example above, as it is sold.",
)

BILLS: Final = (
    "Providers bill the time that passes, not the CPU time. So whatever shortens the time"
    " without more CPU being allocated comes off the bill. The chart prices the function of the"
    " last section under AWS Lambda's tariff, with its fee and its rounding up to 1 ms. Its"
    " vertical axis does not begin at 0.",
    "By the reciprocal every size would cost the same: twice the memory for half the time. In"
    " fact the bill is a saw. Just above a step the same speed costs more with every megabyte;"
    " just at the next it falls. The cheapest size here is {cheapest} MB, {cheapest_saving}"
    " below the reciprocal's bill, and the two sizes on either side of that step differ by"
    " {step_difference}. `uncia cpu predict` gives such advice from a measured table. Note that"
    " nothing tells you that a provider will keep its period.",
    "Two things set a bound to this. Rounding: a task of 50 ms on Google's half a vCPU runs at"
    " full speed within its quota, and is billed 100 ms all the same. And the fee.",
)

BURSTS: Final = (
    "If short tasks pay less, why not cut a long one into bursts that each fit the quota"
    " (*intermittent execution*)? Each burst runs at full speed, and the waits between them are"
    " not billed, but each is an invocation with a fee. The cost paper tried it on AWS Lambda:"
    " 66.7 % fewer GB-seconds, and a bill 76.7 % higher. The table prices a task of 2 s of CPU"
    " time: at 0.25 vCPU the bursts save {burst_saved} of the billed time on AWS Lambda, and"
    " would pay if the fee were below {burst_fee} USD a million; it is {lambda_fee}. The others"
    " round up to 100 ms, so that bursts save nothing or are billed more. `uncia cpu"
    " intermittent` measures it.",
)

BURSTS_AFTER: Final = (
    "What the fees and the rounding are worth to a provider is thus more than their sum: they"
    " make it not worth while to take what the ticks give away. Without them, the accounting"
    " would have to be exact.",
)

EXACT: Final = (
    "It could be. A timer that is set to when the quota will be used up (*event-driven"
    " enforcement*, as the cost paper proposes) stops a task on time, at the cost of an"
    " interrupt for each run. The chart shows what the tick adds: the longest run at each"
    " quota. It is up to a tick longer than the quota, which over many periods is paid back,"
    " but which a task shorter than that keeps. Uncia's embedded platform can enforce by such"
    " timers (`enforcement: event-driven`), so that both can be measured on the same functions.",
    "Exact enforcement does not remove the steps: they come from the period, and so does the"
    " burst of full speed for a task shorter than its quota. Only a shorter period, or a bill"
    " by CPU time, does that.",
)

SOURCES: Final = (
    "*The kernel.* Names of functions, and in which version they changed, are from"
    " kernel/sched/fair.c and the patches to it. That refills coincided with ticks before 6.4"
    " follows from `start_cfs_bandwidth` (a timer that is moved on from 0 by whole periods) and"
    " from ticks that are not skewed.",
    "*The cost paper and its data.* Shares of throttles, CPU times in runs, errors of the"
    " reciprocal and of Equation (2), and what intermittent execution gave are measurements of"
    " its authors, or computed from their published data.",
    "*Ours.* Everything in a chart is computed by Uncia's models when the page is written. What"
    " the random offset of the timer explains about the published profiles is our reading; the"
    " six groups were measured with Uncia's probe. The closed form's means and slopes are"
    " derived here and tested against counting every case.",
)
