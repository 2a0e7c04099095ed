//! What is published of a function: its versions, the aliases that name them, and how many instances
//! of them are kept ready.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::function::Function;

/// The version that changes.
pub(crate) const LATEST: &str = "$LATEST";

/// The version that a qualifier means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Latest,
    Number(u32),
}

/// The versions and aliases of one function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Published {
    /// The highest number that a version has had: none is given twice, not even that of a version
    /// that was deleted.
    pub last_version: u32,
    pub versions: BTreeMap<u32, Arc<Function>>,
    pub aliases: BTreeMap<String, Alias>,
    /// Who may invoke what, by version or alias, or (the empty text) the function as such.
    pub policies: BTreeMap<String, Vec<Statement>>,
    /// Provisioned concurrency by version or alias, as the request named it.
    pub provisioned: BTreeMap<String, Provisioned>,
}

/// A name for a version, or for two of which each gets a part of the requests.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Alias {
    /// None is `$LATEST`.
    pub version: Option<u32>,
    pub description: String,
    pub revision: String,
    /// The other version, which gets this part of the requests, 0 to 1.
    pub additional: Option<(u32, f64)>,
}

/// A statement of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub id: String,
    /// In the language of policies.
    pub text: Value,
}

/// Instances that are kept ready for one version or alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Provisioned {
    pub instances: u32,
    pub modified_unix_ms: i64,
}

/// The number that a qualifier is, written as the platform writes it.
pub(crate) fn version_number(qualifier: &str) -> Option<u32> {
    qualifier.parse().ok().filter(|number: &u32| number.to_string() == qualifier)
}

impl Alias {
    /// The version for one request; `draw` is uniform in 0 to 1, without the 1.
    pub(crate) fn choose(&self, draw: f64) -> Option<u32> {
        match self.additional {
            Some((version, weight)) if draw < weight => Some(version),
            _ => self.version,
        }
    }

    /// Whether it sends requests to this version.
    pub(crate) fn names(&self, version: u32) -> bool {
        self.version == Some(version) || self.additional.is_some_and(|(other, _)| other == version)
    }
}

impl From<Option<u32>> for Version {
    fn from(number: Option<u32>) -> Self {
        number.map_or(Self::Latest, Self::Number)
    }
}

impl Published {
    /// The version that a qualifier means for one request; None if there is no such version or alias.
    pub(crate) fn resolve(&self, qualifier: &str, draw: f64) -> Option<Version> {
        if qualifier == LATEST {
            return Some(Version::Latest);
        }
        match version_number(qualifier) {
            Some(number) => self.versions.contains_key(&number).then_some(Version::Number(number)),
            None => self.aliases.get(qualifier).map(|alias| Version::from(alias.choose(draw))),
        }
    }

    /// Instances of a version to keep ready: its own, and those of aliases that name it first.
    pub(crate) fn provisioned_for(&self, version: u32) -> u32 {
        let means = |qualifier: &str| match self.aliases.get(qualifier) {
            Some(alias) => alias.version == Some(version),
            None => qualifier == version.to_string(),
        };
        let of_it = self.provisioned.iter().filter(|(qualifier, _)| means(qualifier));
        of_it.fold(0, |sum, (_, provisioned)| sum.saturating_add(provisioned.instances))
    }

    /// All provisioned instances of the function.
    pub(crate) fn provisioned_instances(&self) -> u64 {
        self.provisioned.values().map(|provisioned| u64::from(provisioned.instances)).sum()
    }
}

impl Function {
    /// Has every version follow what is not its own: the function's reserved concurrency, and the
    /// provisioned concurrency of the qualifiers that name it.
    pub(crate) fn update_versions(&mut self) {
        let reserved = self.configuration.reserved_concurrency;
        let stale: Vec<_> = (self.published.versions.iter())
            .map(|(number, version)| (*number, version, self.published.provisioned_for(*number)))
            .filter(|(_, version, provisioned)| {
                version.provisioned != *provisioned
                    || version.configuration.reserved_concurrency != reserved
            })
            .map(|(number, version, provisioned)| {
                let mut version = Self::clone(version);
                version.provisioned = provisioned;
                version.configuration.reserved_concurrency = reserved;
                (number, Arc::new(version))
            })
            .collect();
        if !stale.is_empty() {
            Arc::make_mut(&mut self.published).versions.extend(stale);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn alias(version: Option<u32>, additional: Option<(u32, f64)>) -> Alias {
        Alias { version, description: String::new(), revision: String::new(), additional }
    }

    proptest! {
        #[test]
        fn an_alias_chooses_by_weight(weight in 0.0..=1.0, draw in 0.0..1.0) {
            let alias = alias(Some(1), Some((2, weight)));
            prop_assert_eq!(alias.choose(draw), Some(if draw < weight { 2 } else { 1 }));
        }
    }

    #[test]
    fn the_ends_of_the_range_are_certain() {
        let last = 1.0 - f64::EPSILON / 2.0;
        for draw in [0.0, 0.5, last] {
            assert_eq!(alias(Some(1), Some((2, 0.0))).choose(draw), Some(1));
            assert_eq!(alias(Some(1), Some((2, 1.0))).choose(draw), Some(2));
            assert_eq!(alias(None, None).choose(draw), None);
        }
    }

    #[test]
    fn provisioned_concurrency_follows_the_alias() {
        let of = |instances| Provisioned { instances, modified_unix_ms: 0 };
        let mut published = Published {
            aliases: BTreeMap::from([("live".to_owned(), alias(Some(1), Some((2, 0.5))))]),
            provisioned: BTreeMap::from([("live".to_owned(), of(3)), ("2".to_owned(), of(1))]),
            ..Published::default()
        };
        assert_eq!([1, 2, 3].map(|version| published.provisioned_for(version)), [3, 1, 0]);
        published.aliases.get_mut("live").unwrap().version = Some(3);
        assert_eq!([1, 2, 3].map(|version| published.provisioned_for(version)), [0, 1, 3]);
        assert_eq!(published.provisioned_instances(), 4);
    }
}
