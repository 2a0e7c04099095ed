//! A file that an instance hands over in its answers, piece by piece.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use tokio::time::Instant;

use super::environment::BYTES_PER_MIB;
use crate::ids;
use crate::instance::{Outcome, Request};
use crate::runtime::in_proportion;

/// The largest file that is kept.
const MAX_BYTES: u64 = 250 * BYTES_PER_MIB;

/// Writes a new file, which everybody may read, of what `ask` answers: to the event `{"offset": ...}` bytes of the file
/// from there on in base64, as many as it likes, and null at the end.
pub(super) async fn take<F: Future<Output = Outcome> + Send>(
    path: &Path,
    order: Option<&'static str>,
    deadline: Instant,
    ask: impl Fn(Request) -> F + Send,
) -> io::Result<()> {
    let mut offset = 0;
    let mut file = File::create_new(path)?;
    loop {
        let request = Request {
            request_id: ids::uuid(),
            payload: Bytes::from(serde_json::json!({ "offset": offset }).to_string()),
            timeout: deadline.saturating_duration_since(Instant::now()),
            order,
            ..Request::default()
        };
        let answer = match ask(request).await {
            Outcome::Ok(answer) => answer,
            Outcome::FunctionError(error) => {
                return Err(io::Error::other(String::from_utf8_lossy(&error).into_owned()));
            }
            other => return Err(io::Error::other(format!("{other:?}"))),
        };
        let bytes = answer.len();
        let decode = move || {
            let text: Option<String> = serde_json::from_slice(&answer).ok()?;
            STANDARD.decode(text?).ok()
        };
        let Some(piece) = in_proportion(bytes, decode).await else { break };
        offset += piece.len() as u64;
        if piece.is_empty() || offset > MAX_BYTES {
            return Err(io::Error::other("it is too large"));
        }
        let written = tokio::task::spawn_blocking(move || file.write_all(&piece).map(|()| file));
        file = written.await.map_err(io::Error::other)??;
    }
    if offset == 0 {
        return Err(io::Error::other("it is empty"));
    }
    file.set_permissions(Permissions::from_mode(0o444))
}
