//! Sets of policies, by name.

use crate::admission::{self, Admission};
use crate::binding::{self, Binding};
use crate::cpu::{self, Cpu};
use crate::eviction::{self, Eviction};
use crate::order::{self, Order};
use crate::placement::{self, Placement};
use crate::retention::{self, Retention};
use crate::reuse::{self, Reuse};
use crate::scaling::{self, Scaling};

/// A policy that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {kind} policy is named {name:?}; there are: {}", known.join(", "))]
pub struct UnknownPolicy {
    /// What it was to decide.
    pub kind: &'static str,
    /// The unknown name.
    pub name: String,
    /// The names of this kind.
    pub known: Vec<&'static str>,
}

macro_rules! policies {
    ($($kind:ident: $choice:ident = $default:literal, $what:literal;)*) => {
        /// The choices that a [`Scheduler`](crate::Scheduler) leaves to others.
        pub struct Policies {
            $(#[doc = $what] pub $kind: Box<dyn $choice>,)*
        }

        /// The name of each policy; by default those that do what Lambda does, as far as it is
        /// known.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct PolicyNames {
            $(#[doc = $what] pub $kind: String,)*
        }

        impl Default for PolicyNames {
            fn default() -> Self {
                Self { $($kind: $default.to_owned(),)* }
            }
        }

        impl PolicyNames {
            /// The name for this kind of choice; None if there is no such kind.
            pub fn get_mut(&mut self, kind: &str) -> Option<&mut String> {
                match kind {
                    $(stringify!($kind) => Some(&mut self.$kind),)*
                    _ => None,
                }
            }
        }

        impl Policies {
            /// Makes the policies of these names.
            pub fn from_names(names: &PolicyNames) -> Result<Self, UnknownPolicy> {
                Ok(Self { $($kind: find(stringify!($kind), &names.$kind, $kind::POLICIES)?,)* })
            }

            /// Every kind of choice, with the names of its policies.
            pub fn known() -> Vec<(&'static str, Vec<&'static str>)> {
                vec![$((stringify!($kind), names($kind::POLICIES)),)*]
            }
        }
    };
}

policies! {
    admission: Admission = "concurrency-limits", "Whether a request is let in now.";
    order: Order = "first-come", "Which waiting request is next.";
    scaling: Scaling = "one-per-request", "How many instances to start.";
    binding: Binding = "early", "Whether a request may leave the instance started for it.";
    placement: Placement = "first-fit", "On which worker an instance starts.";
    reuse: Reuse = "most-recently-used", "Which instance serves a request.";
    retention: Retention = "fixed-keep-alive", "How long an idle instance is kept.";
    eviction: Eviction = "least-recently-used", "Which instance gives up its room.";
    cpu: Cpu = "unmanaged", "Which CPUs an instance runs on.";
}

impl Default for Policies {
    fn default() -> Self {
        Self::from_names(&PolicyNames::default()).expect("the default policies exist")
    }
}

type Table<T> = [(&'static str, fn() -> Box<T>)];

fn names<T: ?Sized>(table: &Table<T>) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}

fn find<T: ?Sized>(
    kind: &'static str,
    name: &str,
    table: &Table<T>,
) -> Result<Box<T>, UnknownPolicy> {
    match table.iter().find(|(known, _)| *known == name) {
        Some((_, policy)) => Ok(policy()),
        None => Err(UnknownPolicy { kind, name: name.to_owned(), known: names(table) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_an_error_that_lists_the_known_ones() {
        let names = PolicyNames { binding: "eager".into(), ..PolicyNames::default() };
        let error = Policies::from_names(&names).err().unwrap().to_string();
        assert_eq!(error, r#"no binding policy is named "eager"; there are: early, late"#);
    }

    #[test]
    fn every_policy_is_made_by_its_name() {
        for (kind, names) in Policies::known() {
            assert!(names.is_sorted() && !names.is_empty(), "{kind}: {names:?}");
            for name in names {
                let mut set = PolicyNames::default();
                *set.get_mut(kind).unwrap() = name.to_owned();
                assert!(Policies::from_names(&set).is_ok(), "{kind}: {name}");
            }
        }
    }
}
