//! The packages that the platform keeps, as they came.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use tokio::sync::mpsc;
use tokio::time::timeout;
use uncia_oci::Digest;

use super::body::HangUp;
use super::error::{Answer, ApiError};
use super::{Api, body, bytes_answer};
use crate::answer_body::{AnswerBody, End, Passing};
use crate::function::Function;
use crate::reception::{LAYERS, OWN_ANSWERS};

/// Room for a package: one at a time.
const MAX_ZIP_BYTES: usize = 50 * 1024 * 1024;
/// What is read of a layer at a time, and how many such pieces may wait for who takes them.
const PIECE_BYTES: usize = 256 * 1024;
const PIECES: usize = 2;
/// Room for a layer must be free by then.
const ROOM_TIMEOUT: Duration = Duration::from_secs(15);
/// Who takes no piece for so long takes none any more.
const PIECE_TIMEOUT: Duration = Duration::from_secs(30);

/// The zip file of a package, by its hash.
pub(super) async fn zip(api: &Api, sha256: &str, head: &Parts) -> Result<Answer, ApiError> {
    let zip = find_zip(api, sha256)?;
    let unread =
        |error: std::io::Error| ApiError::service(format!("The package cannot be read: {error}"));
    let room = OWN_ANSWERS.enter(MAX_ZIP_BYTES).await;
    let read = tokio::task::spawn_blocking(move || std::fs::read(zip)).await;
    let zip = read.map_err(std::io::Error::other).and_then(|zip| zip).map_err(unread)?;
    Ok(bytes_answer("application/zip", body::occupying(room, head, zip)))
}

/// The zip file of a function's or a layer's package.
fn find_zip(api: &Api, sha256: &str) -> Result<PathBuf, ApiError> {
    let functions = api.registry.all();
    let mut versions = functions.iter().flat_map(Function::versions);
    let is_it = |it: &&Arc<Function>| it.code.sha256() == sha256 && it.code.image().is_none();
    if let Some(function) = versions.find(is_it) {
        return match function.broken {
            Some(_) => Err(ApiError::broken(function)),
            None => Ok(function.code.zip()),
        };
    }
    let layers = api.registry.layers();
    let mut versions = layers.values().flat_map(|layer| layer.versions.values());
    let version = versions.find(|it| it.code.sha256() == sha256);
    if let Some(version) = version {
        return Ok(version.code.zip());
    }
    // Of a layer's version that was deleted, or of code that was replaced, while functions use it still.
    let code = api.registry.packages().in_use(sha256);
    let code = code.ok_or_else(|| ApiError::not_found("There is no such package"))?;
    Ok(code.zip())
}

/// The archive of an image's layer as it came, piece by piece: it may have gigabytes.
pub(super) async fn layer(
    api: &Api,
    layer: &str,
    blob: &str,
    head: &Parts,
) -> Result<Answer, ApiError> {
    let digest = |hex: &str| Digest::parse(&format!("sha256:{hex}"));
    let (Ok(layer), Ok(blob)) = (digest(layer), digest(blob)) else {
        return Err(ApiError::not_found("There is no such layer"));
    };
    let room = timeout(ROOM_TIMEOUT, LAYERS.enter(PIECE_BYTES * (PIECES + 1))).await;
    let room = room.map_err(|_| {
        ApiError::throttled("As many layers are being sent as the platform has room for")
    })?;
    let archive = api.registry.packages().archive(&layer, &blob);
    let opened = tokio::task::spawn_blocking(move || {
        let file = File::open(archive)?;
        let bytes = file.metadata()?.len();
        Ok::<_, io::Error>((file, bytes))
    });
    let opened = opened.await.map_err(io::Error::other).and_then(|it| it);
    let (file, bytes) = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ApiError::not_found(
            "There is no such layer, or it was unpacked before this platform was a controller: \
             update the function's code",
        ),
        _ => ApiError::service(format!("The layer cannot be read: {error}")),
    })?;
    let (sender, pieces) = mpsc::channel(PIECES);
    let hang_up = head.extensions.get::<HangUp>().cloned();
    let sent = tokio::spawn(async move {
        send(file, sender).await.inspect_err(|_| {
            // Who takes nothing does not see the error either.
            if let Some(hang_up) = hang_up {
                hang_up.ask();
            }
        })
    });
    let end: End = Box::pin(async move {
        // Given back with the body.
        let _room = room;
        sent.await.map_err(io::Error::other)??;
        Ok(None)
    });
    let mut answer = bytes_answer("application/vnd.oci.image.layer", Bytes::new());
    *answer.body_mut() = AnswerBody::Passing(Passing::new(pieces, Some(bytes), end));
    Ok(answer)
}

/// Reads a file to its end, unless nobody takes the pieces any more.
async fn send(mut file: File, pieces: mpsc::Sender<Bytes>) -> io::Result<()> {
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
            Ok::<_, io::Error>((file, Bytes::from(piece)))
        });
        let piece;
        (file, piece) = read.await.map_err(io::Error::other)??;
        if piece.is_empty() {
            return Ok(());
        }
        match timeout(PIECE_TIMEOUT, pieces.send(piece)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(()),
            Err(_) => {
                let taken = format!("nothing of it was taken for {} s", PIECE_TIMEOUT.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, taken));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_layer_that_nobody_takes_is_not_held_for_ever() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(PIECE_BYTES as u64 * 4).unwrap();
        let (sender, mut pieces) = mpsc::channel(PIECES);
        let sent = send(file.try_clone().unwrap(), sender).await;
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(pieces.recv().await.unwrap().len(), PIECE_BYTES);
    }
}
