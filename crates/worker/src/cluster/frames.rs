//! How a worker's answer to a request is laid out, so that what an instance sends piece by piece passes to
//! the client while it is made: frames, each a length and as many bytes. The first says how the answer
//! begins, if it does before it is whole; its pieces follow, an empty frame, and what the instance's reply
//! was. A request for a websocket is laid out alike: what the client sends is its pieces.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::wire;
use crate::answer_body::{AnswerBody, Passing};
use crate::instance::HttpAnswer;
use crate::passage::Begun;

/// The largest frame that is read: far above an answer that is there as a whole.
const MAX_FRAME_BYTES: usize = 256 << 20;
const LENGTH_BYTES: usize = size_of::<u32>();

/// How an answer begins whose body follows piece by piece.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Beginning {
    /// Without a body.
    pub answer: HttpAnswer,
    /// The body's size, if the instance has announced it.
    pub announced: Option<u64>,
}

/// The frames of an answer that is there as a whole.
pub(super) fn whole(answer: &Bytes) -> Result<AnswerBody, String> {
    let beginning = frame(wire::encode(&None::<Beginning>)?);
    Ok(Bytes::from([&beginning[..], &last(answer)].concat()).into())
}

/// The frames of an answer that has begun. `answer` resolves when the instance is done.
pub(super) fn streamed(
    begun: Begun,
    answer: JoinHandle<Result<Bytes, String>>,
) -> Result<AnswerBody, String> {
    let Begun { status, headers, announced, pieces, .. } = begun;
    let answer_head = HttpAnswer { status, headers, body: None };
    let beginning = wire::encode(&Some(Beginning { answer: answer_head, announced }))?;
    let end = Box::pin(async move {
        let answer = answer.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        Ok(Some(last(&answer)))
    });
    Ok(AnswerBody::Passing(Passing::new(pieces, None, end).after(beginning).framed(frame)))
}

/// A request whose pieces follow while it is served: frames, too, and an empty one at the end. If `is_whole` is dropped
/// unsent, that one is missing: the client has gone.
pub(super) fn open(
    request: Bytes,
    pieces: mpsc::Receiver<Bytes>,
    is_whole: oneshot::Receiver<()>,
) -> AnswerBody {
    let end = Box::pin(async { Ok(is_whole.await.ok().map(|()| frame(Bytes::new()))) });
    AnswerBody::Passing(Passing::new(pieces, None, end).after(request).framed(frame))
}

fn frame(bytes: Bytes) -> Bytes {
    let mut framed = BytesMut::with_capacity(LENGTH_BYTES + bytes.len());
    framed.put_u32(u32::try_from(bytes.len()).expect("pieces are far below 4 GiB"));
    framed.put_slice(&bytes);
    framed.freeze()
}

/// The end of the pieces, and the reply.
fn last(answer: &Bytes) -> Bytes {
    [&frame(Bytes::new())[..], &frame(answer.clone())].concat().into()
}

/// Reads the frames of an answer.
pub(super) struct Frames {
    body: Incoming,
    read: BytesMut,
}

impl Frames {
    pub(super) fn new(body: Incoming) -> Self {
        Self { body, read: BytesMut::new() }
    }

    /// The next frame.
    ///
    /// # Errors
    /// The body ends before it, or breaks off.
    pub(super) async fn next(&mut self) -> Result<Bytes, String> {
        loop {
            if let Some(frame) = take(&mut self.read)? {
                return Ok(frame);
            }
            let Some(part) = self.body.frame().await else {
                return Err("the answer ends before it is whole".to_owned());
            };
            if let Ok(bytes) = part.map_err(|error| error.to_string())?.into_data() {
                self.read.extend_from_slice(&bytes);
            }
        }
    }

    /// The same in the forms of [`wire`].
    pub(super) async fn read<T: DeserializeOwned>(&mut self) -> Result<T, String> {
        wire::read(&self.next().await?)
    }
}

/// The first frame of what was read, if it is there as a whole.
fn take(read: &mut BytesMut) -> Result<Option<Bytes>, String> {
    let Some(length) = read.first_chunk() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(format!("a frame of {length} bytes is too large"));
    }
    if read.len() < LENGTH_BYTES + length {
        read.reserve(LENGTH_BYTES + length - read.len());
        return Ok(None);
    }
    read.advance(LENGTH_BYTES);
    Ok(Some(read.split_to(length).freeze()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, StatusCode};

    async fn bytes_of(body: AnswerBody) -> BytesMut {
        BytesMut::from(&body.collect().await.unwrap().to_bytes()[..])
    }

    #[tokio::test]
    async fn an_answer_that_is_there_is_one_frame_after_an_empty_one() {
        let mut read = bytes_of(whole(&Bytes::from_static(b"reply")).unwrap()).await;
        let beginning: Option<Beginning> = wire::read(&take(&mut read).unwrap().unwrap()).unwrap();
        assert!(beginning.is_none());
        assert_eq!(take(&mut read).unwrap().unwrap(), "");
        assert_eq!(take(&mut read).unwrap().unwrap(), "reply");
        assert_eq!(take(&mut read), Ok(None));
    }

    #[tokio::test]
    async fn pieces_come_between_beginning_and_end_however_they_are_cut() {
        let (sender, pieces) = mpsc::channel(4);
        for piece in ["a", "", "bc"] {
            sender.send(Bytes::from_static(piece.as_bytes())).await.unwrap();
        }
        drop(sender);
        let headers = HeaderMap::from_iter([(http::header::SERVER, "x".parse().unwrap())]);
        let begun = Begun {
            status: StatusCode::CREATED,
            headers,
            announced: Some(3),
            pieces,
            is_cut: std::sync::Arc::default(),
        };
        let reply = tokio::spawn(async { Ok(Bytes::from_static(b"reply")) });
        let all = bytes_of(streamed(begun, reply).unwrap()).await;
        let mut read = BytesMut::new();
        let mut frames = Vec::new();
        for byte in all {
            read.put_u8(byte);
            frames.extend(take(&mut read).unwrap());
        }
        let beginning: Option<Beginning> = wire::read(&frames[0]).unwrap();
        let beginning = beginning.unwrap();
        assert_eq!((beginning.answer.status, beginning.announced), (StatusCode::CREATED, Some(3)));
        assert_eq!(beginning.answer.headers["server"], "x");
        assert_eq!(frames[1..], ["a", "bc", "", "reply"]);
        assert!(read.is_empty());
    }

    #[test]
    fn absurd_lengths_are_no_reason_to_keep_memory() {
        let mut read = BytesMut::from(&[0xff; 8][..]);
        assert!(take(&mut read).unwrap_err().contains("too large"));
    }
}
