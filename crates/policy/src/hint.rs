//! What a request says of those that come after it, and what is answered to that.

use std::fmt;
use std::time::Duration;

use crate::Nanos;

/// So many requests of the same function come at about this time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hint {
    /// How long after it was given they are expected.
    pub after: Nanos,
    /// How much earlier or later they may come; None: as [`Parameters::hint_within`] says.
    ///
    /// [`Parameters::hint_within`]: crate::Parameters::hint_within
    pub within: Option<Nanos>,
    /// How many they are.
    pub count: u32,
}

/// What becomes of a hint; its text says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintAnswer {
    /// So many instances are to be ready, as far as there is room.
    Taken(u32),
    /// The retention policy reads none.
    NotRead,
    /// Its function's budget is none.
    NoBudget,
    /// It is for a time further ahead than this.
    TooFar(Nanos),
    /// So many of its function are pending as may be.
    TooMany(usize),
    /// There is no such function (any more), or the scheduler is shutting down.
    NoFunction,
}

impl HintAnswer {
    /// Whether anything follows from the hint.
    pub fn is_taken(self) -> bool {
        matches!(self, Self::Taken(_))
    }
}

impl fmt::Display for HintAnswer {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken(count) => write!(to, "taken; count={count}"),
            Self::NotRead => {
                to.write_str("ignored: no policy here reads hints, but for retention=hints")
            }
            Self::NoBudget => to.write_str(
                "ignored: the function keeps no instances for hints (hint_instances is 0)",
            ),
            Self::TooFar(most) => {
                let most = Duration::from_nanos(*most).as_secs_f64();
                write!(to, "refused: it is for a time more than {most} s ahead (hint_ahead)")
            }
            Self::TooMany(most) => {
                write!(to, "refused: {most} hints for the function are pending, and no more may be")
            }
            Self::NoFunction => to.write_str("ignored: the function is gone"),
        }
    }
}
