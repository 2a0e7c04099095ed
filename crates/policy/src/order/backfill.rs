//! As the shortest job first, and where the first does not fit, those behind it that do are served meanwhile.
//!
//! Requests are ranked as by `shortest-job-first`. The first of a queue that needs more than is free, such as a whole
//! worker, would have cores idle until that much is. Here those behind it are asked in their order, and what fits is
//! let in: for `overtaking_times` times the mean duration of the first's function, at most `overtaking_max`, from when
//! others could first have passed it. Then room is kept for it, so that no request starves. A function without a past is not overtaken.
//!
//! Batch schedulers of parallel machines do the same with durations that users state (backfilling: D. Lifka, *The
//! ANL/IBM SP Scheduling System*, JSSPP 1995); here they are those that the function's invocations had.

use super::Order;
use super::shortest_job_first::ShortestJobFirst;
use crate::admission::Candidate;
use crate::{FunctionView, Nanos, Random, View};

/// Ranks by mean duration, and has what fits overtake what does not, with guards against starvation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Backfill;

/// Makes the policy.
pub fn policy() -> Box<dyn Order> {
    Box::new(Backfill)
}

impl Order for Backfill {
    fn rank(
        &mut self,
        view: View<'_>,
        random: &mut Random,
        function: &FunctionView<'_>,
        request: &Candidate,
    ) -> u64 {
        ShortestJobFirst.rank(view, random, function, request)
    }

    fn may_be_passed(
        &mut self,
        view: View<'_>,
        first: &FunctionView<'_>,
        waited_first: Nanos,
    ) -> bool {
        waited_first < view.parameters().overtaking(first.mean_duration().unwrap_or(0))
    }
}
