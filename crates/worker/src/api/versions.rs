//! Versions: publishing, listing and deleting them, and which one a request means.

use std::sync::Arc;

use http::StatusCode;
use serde_json::Value;

use super::description::{code_sha256, describe, describe_as};
use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{self, PublishVersion};
use super::functions::{change_published, find};
use super::limits::check_description;
use super::route::query_values;
use super::{ARN_PREFIX, Api, pages};
use crate::clock;
use crate::function::Function;
use crate::ids;
use crate::published::{LATEST, Version, version_number};

/// A function as a request names it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reference {
    pub name: String,
    /// A version or an alias.
    pub qualifier: Option<String>,
}

/// The version that a request means.
pub(super) struct Target {
    pub version: Arc<Function>,
    /// The version's or the alias's, if the request names one.
    pub qualified_arn: Option<String>,
}

impl Reference {
    /// Reads a name, a partial ARN or an ARN, each with a qualifier or without, which the query may give
    /// too.
    pub(super) fn read(reference: &str, query: &str) -> Result<Self, ApiError> {
        let rest = reference.strip_prefix(ARN_PREFIX).unwrap_or_else(|| {
            // `000000000000:function:NAME`, and ARNs of other accounts and regions.
            reference.split_once(":function:").map_or(reference, |(_, name)| name)
        });
        let (name, given) = match rest.split_once(':') {
            Some((name, qualifier)) => (name, Some(qualifier.to_owned())),
            None => (rest, None),
        };
        let asked = query_values(query, "Qualifier").into_iter().next();
        if given.is_some() && asked.is_some() && given != asked {
            return Err(ApiError::invalid(
                "The derived qualifier from the function name does not match the specified qualifier.",
            ));
        }
        Ok(Self { name: name.to_owned(), qualifier: given.or(asked) })
    }

    pub(super) fn arn(&self) -> String {
        match &self.qualifier {
            Some(qualifier) => format!("{ARN_PREFIX}{}:{qualifier}", self.name),
            None => format!("{ARN_PREFIX}{}", self.name),
        }
    }

    /// The version that one request means: an alias chooses by its weights.
    pub(super) fn resolve(&self, api: &Api) -> Result<Target, ApiError> {
        let missing = || ApiError::not_found(format!("Function not found: {}", self.arn()));
        let function = api.registry.get(&self.name).ok_or_else(missing)?;
        let Some(qualifier) = &self.qualifier else {
            return Ok(Target { version: function, qualified_arn: None });
        };
        let resolved = function.published.resolve(qualifier, ids::fraction());
        let version = match resolved.ok_or_else(missing)? {
            Version::Number(number) => function.published.versions.get(&number).cloned(),
            Version::Latest => Some(function),
        };
        Ok(Target { version: version.ok_or_else(missing)?, qualified_arn: Some(self.arn()) })
    }
}

/// The version that a request means, and the ARN that it is known by.
pub(super) fn find_version(api: &Api, reference: &str, query: &str) -> Result<Target, ApiError> {
    Reference::read(reference, query)?.resolve(api)
}

pub(super) fn publish(api: &Arc<Api>, reference: &str, body: &[u8]) -> Result<Answer, ApiError> {
    let form: PublishVersion = forms::read(body, &[])?;
    let mut number = 0;
    let function = change_published(api, reference, form.RevisionId.as_deref(), |function| {
        let current = code_sha256(&function.code);
        if let Some(expected) = form.CodeSha256.as_ref().filter(|it| !it.is_empty())
            && *expected != current
        {
            return Err(ApiError::invalid(format!(
                "CodeSHA256 ({expected}) is different from current CodeSHA256 in $LATEST \
                 ({current}). Please try again with the CodeSHA256 in $LATEST."
            )));
        }
        number = add(api, function, form.Description.as_deref())?;
        Ok(())
    })?;
    Ok(json_answer(StatusCode::CREATED, &describe_number(api, &function, number)?))
}

/// Publishes the function as it is, and returns the version's number: the last version's, if nothing
/// has changed since.
pub(super) fn add(
    api: &Api,
    function: &mut Function,
    description: Option<&str>,
) -> Result<u32, ApiError> {
    if function.broken.is_some() {
        return Err(ApiError::broken(function));
    }
    if let Some((number, last)) = function.published.versions.last_key_value()
        && last.same_version(function)
    {
        return Ok(*number);
    }
    let number = function.published.last_version + 1;
    let mut version = api.registry.new_version(function, number);
    if let Some(description) = description.filter(|text| !text.is_empty()) {
        check_description(description)?;
        description.clone_into(&mut version.configuration.description);
    }
    version.configuration.modified_unix_ms = clock::unix_ns() / 1_000_000;
    version.configuration.revision = ids::uuid();
    let published = Arc::make_mut(&mut function.published);
    published.versions.insert(number, Arc::new(version));
    published.last_version = number;
    Ok(number)
}

/// A function's version as Lambda describes it.
pub(super) fn describe_number(
    api: &Api,
    function: &Function,
    number: u32,
) -> Result<Value, ApiError> {
    let version = function.published.versions.get(&number);
    let version = version.ok_or_else(|| ApiError::service("The version was deleted meanwhile"))?;
    Ok(describe(api, version))
}

pub(super) fn list(api: &Api, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let function = find(api, reference)?;
    let latest = describe_as(api, &function, &format!("{}:{LATEST}", function.arn));
    let rows = std::iter::once((LATEST.to_owned(), latest)).chain(
        function.published.versions.iter().map(|(number, version)| {
            // So that they sort by number.
            (format!("{number:010}"), describe(api, version))
        }),
    );
    pages::answer("Versions", rows, query)
}

/// Deletes one version, which no alias may name.
pub(super) fn delete(api: &Arc<Api>, reference: &Reference) -> Result<Answer, ApiError> {
    let qualifier = reference.qualifier.as_deref().unwrap_or(LATEST);
    if qualifier == LATEST {
        return Err(ApiError::invalid(
            "$LATEST version cannot be deleted without deleting the function.",
        ));
    }
    let Some(number) = version_number(qualifier) else {
        return Err(ApiError::invalid(format!(
            "{qualifier:?} is no version; DeleteAlias deletes aliases"
        )));
    };
    let mut removed = None;
    change_published(api, &reference.name, None, |function| {
        let published = &function.published;
        let users: Vec<_> = (published.aliases.iter())
            .filter(|(_, alias)| alias.names(number))
            .map(|(name, _)| name.as_str())
            .collect();
        if !users.is_empty() {
            return Err(ApiError::conflict(format!(
                "Unable to delete version because the following aliases reference it: {users:?}"
            )));
        }
        // A version that is gone is no error, as on Lambda.
        if published.versions.contains_key(&number) {
            let published = Arc::make_mut(&mut function.published);
            removed = published.versions.remove(&number);
            published.provisioned.remove(&number.to_string());
            published.policies.remove(&number.to_string());
        }
        Ok(())
    })?;
    if let Some(version) = removed {
        api.dispatcher.delete(&version);
    }
    Ok(empty_answer(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_go_by_name_or_arn_and_versions_by_qualifier() {
        let read = |reference: &str, query: &str| {
            Reference::read(reference, query).map(|it| (it.name, it.qualifier))
        };
        for prefix in [
            "",
            "000000000000:function:",
            "arn:aws:lambda:us-east-1:000000000000:function:",
            "arn:aws:lambda:eu-north-1:123456789012:function:",
        ] {
            let name = format!("{prefix}resize");
            assert_eq!(read(&name, "").unwrap(), ("resize".to_owned(), None));
            for (reference, query) in [
                (format!("{name}:live"), ""),
                (name.clone(), "Qualifier=live"),
                (format!("{name}:live"), "x=1&Qualifier=live"),
            ] {
                let expected = ("resize".to_owned(), Some("live".to_owned()));
                assert_eq!(read(&reference, query).unwrap(), expected);
            }
        }
        let error = read("resize:1", "Qualifier=2").unwrap_err();
        assert_eq!(error.kind, "InvalidParameterValueException");
        assert_eq!(read("f", "Qualifier=%24LATEST").unwrap().1.as_deref(), Some("$LATEST"));
    }
}
