/// What a function's requests ask for, when no instance of it is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// Requests that wait for an instance.
    pub waiting: u32,
    /// Instances that are being started.
    pub starting: u32,
    /// Instances that serve a request.
    pub busy: u32,
}

/// Decides how many more instances of a function to start.
pub trait Scaling: Send {
    fn starts(&self, demand: &Demand) -> u32;
}

/// Lambda's rule, one instance per concurrent request: `starts = max(0, waiting - starting)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct OnePerRequest;

impl Scaling for OnePerRequest {
    fn starts(&self, demand: &Demand) -> u32 {
        demand.waiting.saturating_sub(demand.starting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_waiting_request_has_an_instance_on_its_way() {
        let starts =
            |waiting, starting| OnePerRequest.starts(&Demand { waiting, starting, busy: 7 });
        assert_eq!(starts(3, 1), 2);
        assert_eq!(starts(1, 3), 0);
    }
}
