use crate::{
    Admission, Binding, ConcurrencyLimits, EarlyBinding, Eviction, FixedKeepAlive, LateBinding,
    LeastRecentlyUsed, MostRecentlyUsed, OnePerRequest, Retention, Reuse, Scaling,
};

/// The choices that a [`Scheduler`](crate::Scheduler) leaves to others.
pub struct Policies {
    pub admission: Box<dyn Admission>,
    pub scaling: Box<dyn Scaling>,
    pub binding: Box<dyn Binding>,
    pub reuse: Box<dyn Reuse>,
    pub retention: Box<dyn Retention>,
    pub eviction: Box<dyn Eviction>,
}

/// The name of each policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyNames {
    pub admission: String,
    pub order: String,
    pub scaling: String,
    pub binding: String,
    pub placement: String,
    pub reuse: String,
    pub retention: String,
    pub eviction: String,
    pub cpu: String,
}

impl Default for PolicyNames {
    /// What Lambda does, as far as it is known.
    fn default() -> Self {
        Self {
            admission: "concurrency-limits".into(),
            order: "first-come".into(),
            scaling: "one-per-request".into(),
            binding: "early".into(),
            placement: "first-fit".into(),
            reuse: "most-recently-used".into(),
            retention: "fixed-keep-alive".into(),
            eviction: "least-recently-used".into(),
            cpu: "unmanaged".into(),
        }
    }
}

/// A policy that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {kind} policy is named {name:?}; there are: {}", known.join(", "))]
pub struct UnknownPolicy {
    pub kind: &'static str,
    pub name: String,
    pub known: Vec<&'static str>,
}

impl Policies {
    /// The policies of these names.
    pub fn from_names(names: &PolicyNames) -> Result<Self, UnknownPolicy> {
        let binding: Box<dyn Binding> = match names.binding.as_str() {
            "early" => Box::new(EarlyBinding),
            "late" => Box::new(LateBinding),
            name => {
                return Err(UnknownPolicy {
                    kind: "binding",
                    name: name.into(),
                    known: vec!["early", "late"],
                });
            }
        };
        Ok(Self { binding, ..Self::default() })
    }
}

impl Default for Policies {
    /// What Lambda does, as far as it is known.
    fn default() -> Self {
        Self {
            admission: Box::new(ConcurrencyLimits),
            scaling: Box::new(OnePerRequest),
            binding: Box::new(EarlyBinding),
            reuse: Box::new(MostRecentlyUsed),
            retention: Box::new(FixedKeepAlive),
            eviction: Box::new(LeastRecentlyUsed),
        }
    }
}
