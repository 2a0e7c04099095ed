//! How many files this process may have open at once (`RLIMIT_NOFILE`).

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The limit that holds now; `None`: there is none.
pub fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Raises the limit as far as this process may, which is to its hard limit, and returns what holds
/// then; `None`: there is no limit.
pub fn raise_limit() -> Option<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // Already as high as that, it needs no call; refused, the limit stays as it is.
    if current == maximum
        || setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_err()
    {
        return current;
    }
    maximum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lowered_limit_is_raised_to_the_hard_one() {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // Enough for whatever else this process does meanwhile.
        let lowered = maximum.or(current).map_or(512, |most| most.min(512));
        setrlimit(Resource::Nofile, Rlimit { current: Some(lowered), maximum }).unwrap();
        assert_eq!(limit(), Some(lowered));
        assert_eq!(raise_limit(), maximum);
        assert_eq!(limit(), maximum);
        assert_eq!(raise_limit(), maximum);
    }
}
