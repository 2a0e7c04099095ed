use crate::Rejection;

/// How much is in flight, and how much may be. A request is in flight from its arrival until its
/// answer, whether it waits or runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub function_in_flight: u32,
    pub function_limit: u32,
    pub worker_in_flight: u32,
    pub worker_limit: u32,
}

/// Decides whether a request that comes in is let in.
pub trait Admission: Send {
    fn admit(&self, load: &Load) -> Result<(), Rejection>;
}

/// Lambda's rule: a request is turned away when as many are in flight as the function, or the
/// worker, may have. `admit <=> function_in_flight < function_limit and worker_in_flight <
/// worker_limit`
#[derive(Debug, Clone, Copy, Default)]
pub struct ConcurrencyLimits;

impl Admission for ConcurrencyLimits {
    fn admit(&self, load: &Load) -> Result<(), Rejection> {
        if load.function_in_flight >= load.function_limit {
            Err(Rejection::FunctionLimit)
        } else if load.worker_in_flight >= load.worker_limit {
            Err(Rejection::WorkerLimit)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_the_most_that_may_be_in_flight() {
        let load = |function_in_flight, function_limit, worker_in_flight, worker_limit| Load {
            function_in_flight,
            function_limit,
            worker_in_flight,
            worker_limit,
        };
        let admit = |load| ConcurrencyLimits.admit(&load);
        assert_eq!(admit(load(1, 2, 3, 4)), Ok(()));
        assert_eq!(admit(load(2, 2, 3, 4)), Err(Rejection::FunctionLimit));
        assert_eq!(admit(load(1, 2, 4, 4)), Err(Rejection::WorkerLimit));
        assert_eq!(admit(load(0, 0, 0, 4)), Err(Rejection::FunctionLimit));
    }
}
