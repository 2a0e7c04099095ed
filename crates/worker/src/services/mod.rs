//! Services beside functions, such as a store of objects: a file each, found by its place.
//!
//! A file defines `SERVICE`: its name (the file's), the port at which instances that [reach](crate::settings) it
//! find it, and what it sets in their environment. The worker knows nothing else of it: it passes on bytes.

mod table {
    include!(concat!(env!("OUT_DIR"), "/services.rs"));
}

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::json::UniqueKeys;

pub(crate) use table::ALL;

/// The first port of services inside an instance, behind those of the Runtime API and of Invoke.
const FIRST_PORT: u16 = 9010;

/// A service as it is declared.
pub(crate) struct Service {
    pub name: &'static str,
    /// The variable by which clients find it, made from its address inside the instance.
    pub variable: (&'static str, fn(address: &str) -> String),
}

/// Which services a function reaches: a bit for each, in the order of [`ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Reach(pub(crate) u64);

impl Reach {
    /// No service.
    pub const NONE: Self = Self(0);

    /// Those of these names, if there are such services.
    pub fn named(names: &[&str]) -> Option<Self> {
        names.iter().try_fold(Self::default(), |Self(bits), name| {
            let index = ALL.iter().position(|it| it.name == *name)?;
            Some(Self(bits | 1 << index))
        })
    }

    /// Whether it has no service.
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has the service with this index among [`ALL`].
    pub(crate) fn has(self, index: usize) -> bool {
        self.0 >> index & 1 == 1
    }

    /// The services that it has, with their indices among [`ALL`].
    pub(crate) fn services(self) -> impl Iterator<Item = (usize, &'static Service)> {
        ALL.iter().copied().enumerate().filter(move |(index, _)| self.has(*index))
    }
}

/// The port at which an instance finds the service with this index among [`ALL`].
pub(crate) fn port(index: usize) -> u16 {
    FIRST_PORT + u16::try_from(index).expect("there are few services")
}

/// Whether it is the port of a service inside an instance.
pub(crate) fn is_port(number: u16) -> bool {
    (0..ALL.len()).any(|index| port(index) == number)
}

/// Where a service is, and what who uses it must know.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Located {
    /// `HOST:PORT`, as the worker reaches it.
    pub address: String,
    /// Variables of the instances that reach it, such as credentials.
    #[serde(default)]
    pub environment: UniqueKeys<String>,
}

/// The services that there are, by the index of each among [`ALL`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Services(BTreeMap<usize, Located>);

impl Services {
    /// Those of these names; the error is a sentence.
    pub(crate) fn new(located: BTreeMap<String, Located>) -> Result<Self, String> {
        let mut services = BTreeMap::new();
        for (name, located) in located {
            let index = ALL.iter().position(|it| it.name == name).ok_or_else(|| {
                let known: Vec<_> = ALL.iter().map(|it| format!("`{}`", it.name)).collect();
                format!("unknown service `{name}`, expected one of {}", known.join(", "))
            })?;
            let port = located.address.rsplit_once(':').and_then(|(host, port)| {
                port.parse::<u16>().ok().filter(|port| *port > 0 && !host.is_empty())
            });
            if port.is_none() {
                let address = &located.address;
                return Err(format!(
                    "`services.{name}.address` must be HOST:PORT, not {address:?}"
                ));
            }
            services.insert(index, located);
        }
        Ok(Self(services))
    }

    /// The ports at which instances find them, in order.
    pub(crate) fn ports(&self) -> impl Iterator<Item = u16> {
        self.indices().map(port)
    }

    /// Their indices among [`ALL`], in order.
    pub(crate) fn indices(&self) -> impl Iterator<Item = usize> {
        self.0.keys().copied()
    }

    /// Where the service with this index among [`ALL`] is.
    pub(crate) fn get(&self, index: usize) -> Option<&Located> {
        self.0.get(&index)
    }

    /// Where the service of this name is.
    pub(crate) fn named(&self, name: &str) -> Option<&Located> {
        self.get(ALL.iter().position(|it| it.name == name)?)
    }

    /// Why a function cannot reach these services, if it cannot: a sentence.
    pub(crate) fn refusal(&self, reach: Reach) -> Option<String> {
        let (_, missing) = reach.services().find(|(index, _)| !self.0.contains_key(index))?;
        Some(format!(
            "The function cannot reach the service {name}: this platform has none. Name its address when the \
             platform is started: `uncia serve --service {name}=HOST:PORT`, or `services` in its configuration.",
            name = missing.name
        ))
    }

    /// What the services set in the environment of an instance that reaches these.
    pub(crate) fn environment(&self, reach: Reach) -> impl Iterator<Item = (String, String)> {
        reach.services().flat_map(|(index, service)| {
            let (name, value) = service.variable;
            let address = (name.to_owned(), value(&format!("127.0.0.1:{}", port(index))));
            let located = self.get(index).into_iter();
            let of_service = located.flat_map(|it| it.environment.0.clone());
            std::iter::once(address).chain(of_service)
        })
    }
}
