//! Credentials in a file, in the form of AWS's shared credentials file: whoever has the file can sign with
//! it (`AWS_SHARED_CREDENTIALS_FILE`).

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use uncia_sigv4::hash;

use super::{Access, Key, MIN_SECRET, is_weak};

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 64 * 1024;
/// What others may do with a file: it must be nothing.
const OTHERS: u32 = 0o077;

const ID: &str = "aws_access_key_id";
const SECRET: &str = "aws_secret_access_key";
const SESSION: &str = "aws_session_token";
const TOKEN: &str = "uncia_token";
const KEYS: [&str; 4] = [ID, SECRET, SESSION, TOKEN];

/// Why a file of credentials is not taken. Their sentences name lines and keys, and no values.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "its sentence says what each case is")]
pub enum CredentialsError {
    #[error("the credentials cannot be read: {path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("others may read the credentials: run `chmod 600 {0}`")]
    Open(PathBuf),
    #[error("{path}, line {line}: {problem}")]
    Line { path: PathBuf, line: usize, problem: String },
    #[error("{path}, [{section}]: {problem}")]
    Section { path: PathBuf, section: String, problem: String },
    #[error("{0} has no credentials in it: write {ID} and {SECRET}, or {TOKEN}")]
    Empty(PathBuf),
}

/// The keys of a section, and their values.
type Section = BTreeMap<&'static str, String>;

pub(super) fn read(path: &Path) -> Result<Access, CredentialsError> {
    let unread = |source| CredentialsError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(unread)?;
    let about = file.metadata().map_err(unread)?;
    if about.is_file() && about.permissions().mode() & OTHERS != 0 {
        return Err(CredentialsError::Open(path.to_owned()));
    }
    let mut text = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unread)?;
    if read as u64 > MAX_BYTES {
        return Err(unread(io::Error::other(format!("it has more than {MAX_BYTES} bytes"))));
    }
    parse(path, &text)
}

fn parse(path: &Path, text: &str) -> Result<Access, CredentialsError> {
    let mut access = Access::default();
    for (name, section) in sections(path, text)? {
        let problem = |problem: String| CredentialsError::Section {
            path: path.to_owned(),
            section: name.clone(),
            problem,
        };
        for key in [SECRET, TOKEN] {
            if section.get(key).is_some_and(|value| is_weak(value)) {
                return Err(problem(format!("{key} has fewer than {MIN_SECRET} characters")));
            }
        }
        match (section.get(ID), section.get(SECRET)) {
            (Some(id), Some(secret)) => {
                let session = section.get(SESSION).cloned();
                access.keys.push(Key { id: id.clone(), secret: secret.clone(), session });
            }
            (None, None) => {}
            (Some(_), None) => return Err(problem(format!("{SECRET} is missing beside {ID}"))),
            (None, Some(_)) => return Err(problem(format!("{ID} is missing beside {SECRET}"))),
        }
        access.tokens.extend(section.get(TOKEN).map(|token| hash(token.as_bytes())));
    }
    if access.is_empty() {
        return Err(CredentialsError::Empty(path.to_owned()));
    }
    Ok(access)
}

fn sections(path: &Path, text: &str) -> Result<Vec<(String, Section)>, CredentialsError> {
    let mut sections: Vec<(String, Section)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |problem: String| CredentialsError::Line {
            path: path.to_owned(),
            line: index + 1,
            problem,
        };
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push((name.trim().to_owned(), Section::new()));
            continue;
        }
        let Some((_, section)) = sections.last_mut() else {
            return Err(wrong("a section such as [default] must come first".to_owned()));
        };
        let Some((key, value)) = line.split_once('=') else {
            return Err(wrong("write KEY = VALUE".to_owned()));
        };
        let key = key.trim();
        let Some(known) = KEYS.into_iter().find(|known| known.eq_ignore_ascii_case(key)) else {
            return Err(wrong(format!("its key is none of {}", KEYS.join(", "))));
        };
        if value.trim().is_empty() {
            return Err(wrong(format!("{known} has no value")));
        }
        if section.insert(known, value.trim().to_owned()).is_some() {
            return Err(wrong(format!("{known} is there twice")));
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    const FINE: &str = "# of the team\n[default]\naws_access_key_id = AKIDEXAMPLE\n\
        aws_secret_access_key = wJalrXUtnFEMI/K7MDENG\n\n[page]\nuncia_token=0123456789abcdef\n";

    fn parsed(text: &str) -> Result<Access, String> {
        parse(Path::new("f"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn sections_are_pairs_or_tokens() {
        let access = parsed(FINE).unwrap();
        assert_eq!((access.keys.len(), access.tokens.len()), (1, 1));
        assert_eq!((&*access.keys[0].id, access.keys[0].session.as_deref()), ("AKIDEXAMPLE", None));
    }

    #[test]
    fn what_is_wrong_is_named_and_no_secret_is() {
        for (text, words) in [
            ("", "has no credentials in it"),
            ("[a]\n", "has no credentials in it"),
            ("uncia_token = SECRETSECRETSECRET", "line 1: a section"),
            ("[a]\nSECRETSECRETSECRET", "line 2: write KEY = VALUE"),
            ("[a]\nregion = SECRETSECRET", "line 2: its key is none of"),
            ("[a]\nuncia_token =", "uncia_token has no value"),
            ("[a]\nuncia_token = SECRET", "[a]: uncia_token has fewer than 16"),
            ("[a]\nuncia_token = x\nuncia_token = x", "line 3: uncia_token is there twice"),
            ("[a]\naws_access_key_id = SECRET", "aws_secret_access_key is missing beside"),
            ("[a]\naws_secret_access_key = SECRETSECRETSECRET", "aws_access_key_id is missing"),
        ] {
            let message = parsed(text).unwrap_err();
            assert!(message.contains(words), "{message}");
            assert!(!message.contains("SECRET"), "{message}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credentials");
        fs::write(&path, FINE).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let refused = Access::of_file(&path).unwrap_err().to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(!Access::of_file(&path).unwrap().is_empty());
        fs::write(&path, "#".repeat(70_000)).unwrap();
        assert!(Access::of_file(&path).unwrap_err().to_string().contains("more than"));
        assert!(Access::of_file(&folder.path().join("none")).is_err());
    }
}
