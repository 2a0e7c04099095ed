//! Policies of functions: statements that say who may invoke them. They are kept and listed; there is one account,
//! and whoever can reach the platform has it, so nobody is refused by one.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::error::{Answer, ApiError, empty_answer, json_answer};
use super::forms::{self, PermissionForm};
use super::functions::{change_published, find};
use super::route::query_values;
use super::versions::Reference;
use super::{ARN_PREFIX, Api};
use crate::function::Function;
use crate::published::{LATEST, Statement};

const MAX_STATEMENT_ID: usize = 100;
/// Lambda's limit of a policy's text.
const MAX_POLICY_BYTES: usize = 20 * 1024;

/// Whose policy a request is about: a version's or alias's, or (the empty text) the function's.
fn subject(function: &Function, reference: &Reference) -> Result<String, ApiError> {
    let qualifier = reference.qualifier.clone().unwrap_or_default();
    if qualifier == LATEST {
        return Err(ApiError::invalid(
            "We currently do not support adding policies for $LATEST.".to_owned(),
        ));
    }
    let is_there = qualifier.is_empty() || function.published.resolve(&qualifier, 0.0).is_some();
    if is_there {
        return Ok(qualifier);
    }
    Err(ApiError::not_found(format!("Function not found: {}", reference.arn())))
}

pub(super) fn add(
    api: &Arc<Api>,
    reference: &str,
    query: &str,
    body: &[u8],
) -> Result<Answer, ApiError> {
    let form: PermissionForm = forms::read(body, &["PrincipalOrgID", "EventSourceToken"])?;
    check(&form)?;
    let reference = Reference::read(reference, query)?;
    let mut added = Value::Null;
    change_published(api, &reference.name, None, |function| {
        let subject = subject(function, &reference)?;
        let statements = function.published.policies.get(&subject);
        check_revision(form.RevisionId.as_deref(), statements)?;
        let statements = statements.into_iter().flatten();
        if statements.clone().any(|it| it.id == form.StatementId) {
            return Err(ApiError::conflict(format!(
                "The statement id ({}) provided already exists. Please provide a new statement id, or \
                 remove the existing statement.",
                form.StatementId
            )));
        }
        added = statement(&form, &reference.arn());
        let bytes: usize = statements.map(|it| it.text.to_string().len()).sum();
        if bytes + added.to_string().len() > MAX_POLICY_BYTES {
            return Err(ApiError::invalid(format!(
                "The final policy size is bigger than the limit ({MAX_POLICY_BYTES})."
            )));
        }
        let new = Statement { id: form.StatementId.clone(), text: added.clone() };
        Arc::make_mut(&mut function.published).policies.entry(subject).or_default().push(new);
        Ok(())
    })?;
    Ok(json_answer(StatusCode::CREATED, &json!({"Statement": added.to_string()})))
}

pub(super) fn remove(
    api: &Arc<Api>,
    reference: &str,
    statement: &str,
    query: &str,
) -> Result<Answer, ApiError> {
    let reference = Reference::read(reference, query)?;
    let revision = query_values(query, "RevisionId").into_iter().next();
    change_published(api, &reference.name, None, |function| {
        let subject = subject(function, &reference)?;
        check_revision(revision.as_deref(), function.published.policies.get(&subject))?;
        let policies = &mut Arc::make_mut(&mut function.published).policies;
        let statements = policies.entry(subject.clone()).or_default();
        let before = statements.len();
        statements.retain(|it| it.id != statement);
        let removed = statements.len() < before;
        policies.retain(|_, statements| !statements.is_empty());
        if removed {
            return Ok(());
        }
        Err(ApiError::not_found(format!("Statement {statement} is not found in resource policy.")))
    })?;
    Ok(empty_answer(StatusCode::NO_CONTENT))
}

pub(super) fn get(api: &Api, reference: &str, query: &str) -> Result<Answer, ApiError> {
    let reference = Reference::read(reference, query)?;
    let function = find(api, &reference.name)?;
    let statements = function.published.policies.get(&subject(&function, &reference)?);
    let statements = statements.ok_or_else(|| {
        ApiError::not_found("The resource you requested does not exist.".to_owned())
    })?;
    let texts: Vec<&Value> = statements.iter().map(|it| &it.text).collect();
    let policy = json!({"Version": "2012-10-17", "Id": "default", "Statement": texts});
    let body = json!({"Policy": policy.to_string(), "RevisionId": revision(statements)});
    Ok(json_answer(StatusCode::OK, &body))
}

fn check_revision(
    given: Option<&str>,
    statements: Option<&Vec<Statement>>,
) -> Result<(), ApiError> {
    let current = revision(statements.map_or(&[][..], Vec::as_slice));
    if given.is_none_or(|given| given == current) {
        return Ok(());
    }
    Err(ApiError::precondition("The RevisionId provided does not match the latest RevisionId"))
}

/// What changes with a policy, in the form of a UUID.
fn revision(statements: &[Statement]) -> String {
    let texts: Vec<String> = statements.iter().map(|it| it.text.to_string()).collect();
    let digits = hex::encode(Sha256::digest(texts.join("\n")));
    let part = |from: usize, to: usize| &digits[from..to];
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

fn check(form: &PermissionForm) -> Result<(), ApiError> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let id = &form.StatementId;
    if id.is_empty() || id.len() > MAX_STATEMENT_ID || !id.bytes().all(fine) {
        return Err(ApiError::invalid(format!(
            "StatementId must be 1 to {MAX_STATEMENT_ID} letters, digits, hyphens and underscores, not {id:?}"
        )));
    }
    let action = form.Action.strip_prefix("lambda:").unwrap_or(&form.Action);
    if action != "*"
        && (action == form.Action || !action.bytes().all(|it| it.is_ascii_alphabetic()))
    {
        return Err(ApiError::invalid(format!(
            "Action must be one of Lambda's, such as lambda:InvokeFunction, not {:?}",
            form.Action
        )));
    }
    if form.Principal.is_empty() {
        return Err(ApiError::invalid("Principal must name a service, an account or *"));
    }
    match form.FunctionUrlAuthType.as_deref() {
        None | Some("NONE" | "AWS_IAM") => Ok(()),
        Some(other) => Err(ApiError::invalid(format!(
            "FunctionUrlAuthType must be NONE or AWS_IAM, not {other:?}"
        ))),
    }
}

/// A statement in the language of policies.
fn statement(form: &PermissionForm, arn: &str) -> Value {
    let principal = match form.Principal.as_str() {
        "*" => json!("*"),
        service if service.ends_with(".amazonaws.com") => json!({"Service": service}),
        account if account.bytes().all(|it| it.is_ascii_digit()) => {
            json!({"AWS": format!("arn:aws:iam::{account}:root")})
        }
        other => json!({"AWS": other}),
    };
    let mut equal = Map::new();
    for (key, value) in [
        ("lambda:FunctionUrlAuthType", &form.FunctionUrlAuthType),
        ("AWS:SourceAccount", &form.SourceAccount),
    ] {
        equal.extend(value.as_ref().map(|value| (key.to_owned(), json!(value))));
    }
    let mut conditions = Map::new();
    if !equal.is_empty() {
        conditions.insert("StringEquals".to_owned(), Value::Object(equal));
    }
    if let Some(source) = &form.SourceArn {
        conditions.insert("ArnLike".to_owned(), json!({"AWS:SourceArn": source}));
    }
    if let Some(by_url) = form.InvokedViaFunctionUrl {
        conditions
            .insert("Bool".to_owned(), json!({"lambda:InvokedViaFunctionUrl": by_url.to_string()}));
    }
    let mut statement = json!({
        "Sid": form.StatementId,
        "Effect": "Allow",
        "Principal": principal,
        "Action": form.Action,
        "Resource": if arn.is_empty() { ARN_PREFIX } else { arn },
    });
    if !conditions.is_empty() {
        statement["Condition"] = Value::Object(conditions);
    }
    statement
}
