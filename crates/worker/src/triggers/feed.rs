//! The feed of changes of the service of documents, over Redis' protocol.
//!
//! The service keeps every change in a stream, below a prefix of its own; a change's position is the
//! revision that it gave. Source of the protocol: <https://redis.io/docs/latest/develop/reference/protocol-spec/>
//! (RESP2).

use std::pin::Pin;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::ids;
use crate::services::Located;

/// Connecting, and the reply to a command beyond what it waits for itself.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest text in a reply; the server itself takes no more.
const MAX_TEXT_BYTES: usize = 512 << 20;
/// The deepest list in a reply that is read, and the most entries that are believed at once.
const MAX_DEPTH: u32 = 8;
const MAX_ENTRIES: usize = 1 << 20;

/// Variables of the service, which its clients find it by.
const PREFIX: &str = "UNCIA_DOCUMENTS_PREFIX";
const USER: &str = "UNCIA_DOCUMENTS_USER";
const PASSWORD: &str = "UNCIA_DOCUMENTS_PASSWORD";
const DATABASE: &str = "UNCIA_DOCUMENTS_DATABASE";

/// Why the feed cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum FeedError {
    #[error("the documents' server at {0} cannot be reached: {1}")]
    Unreachable(String, std::io::Error),
    #[error("the documents' server at {0} does not answer")]
    Silent(String),
    #[error("the documents' server at {0} refuses: {1}")]
    Refused(String, String),
    #[error("what answers at {0} does not speak Redis' protocol")]
    Foreign(String),
    #[error("the service documents has no {PREFIX}: start the platform with it")]
    NoPrefix,
}

impl FeedError {
    /// The same without a secret: a server that has no such command repeats what it was asked.
    fn without(self, secret: &str) -> Self {
        match self {
            Self::Refused(address, message) => {
                Self::Refused(address, message.replace(secret, "***"))
            }
            other => other,
        }
    }
}

/// A change of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub position: i64,
    pub key: String,
    /// `put` or `delete`.
    pub kind: String,
    /// Of `put`: what was written, as it was written.
    pub json: String,
    /// What the writer calls itself; empty if it does not.
    pub writer: String,
}

impl Change {
    /// Tells this change from another that has its position after the server was set back.
    pub(crate) fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for text in [&self.key, &self.kind, &self.json, &self.writer] {
            // Before each its length: none passes for a part of the next.
            digest.update(text.len().to_be_bytes());
            digest.update(text);
        }
        hex::encode(digest.finalize())
    }
}

/// A connection to the server.
pub(super) struct Feed {
    connection: BufReader<TcpStream>,
    address: String,
    prefix: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Reply {
    Text(String),
    Number(i64),
    Nothing,
    List(Vec<Self>),
    Error(String),
}

impl Feed {
    pub(super) async fn connect(service: &Located) -> Result<Self, FeedError> {
        let address = service.address.clone();
        let of = |name: &str| service.environment.0.get(name).filter(|it| !it.is_empty());
        let prefix = of(PREFIX).ok_or(FeedError::NoPrefix)?.clone();
        let connected = timeout(PATIENCE, TcpStream::connect(&address)).await;
        let connection = match connected {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return Err(FeedError::Unreachable(address, error)),
            Err(_) => return Err(FeedError::Silent(address)),
        };
        // Without it, it is only slower.
        let _ = connection.set_nodelay(true);
        let mut feed = Self { connection: BufReader::new(connection), address, prefix };
        if let Some(password) = of(PASSWORD) {
            let user = of(USER).map_or("default", String::as_str);
            let asked = feed.ask(&["AUTH", user, password], Duration::ZERO).await;
            asked.map_err(|error| error.without(password))?;
        }
        if let Some(database) = of(DATABASE).filter(|it| *it != "0") {
            feed.ask(&["SELECT", database], Duration::ZERO).await?;
        }
        Ok(feed)
    }

    /// What tells this feed from another that is served here later. It goes with the changes.
    pub(super) async fn id(&mut self) -> Result<String, FeedError> {
        let key = format!("{}feed", self.prefix);
        let mut id = self.ask(&["GET", &key], Duration::ZERO).await?;
        if id == Reply::Nothing {
            // Only then: a server that is full refuses whatever may write.
            self.ask(&["SET", &key, &ids::uuid(), "NX"], Duration::ZERO).await?;
            id = self.ask(&["GET", &key], Duration::ZERO).await?;
        }
        match id {
            Reply::Text(id) => Ok(id),
            _ => Err(self.foreign()),
        }
    }

    /// The position of the newest change; 0 if there has been none.
    pub(super) async fn newest(&mut self) -> Result<i64, FeedError> {
        let key = format!("{}last", self.prefix);
        match self.ask(&["GET", &key], Duration::ZERO).await? {
            Reply::Nothing => Ok(0),
            Reply::Text(number) => number.parse().map_err(|_| self.foreign()),
            _ => Err(self.foreign()),
        }
    }

    /// The next changes behind a position, oldest first, at most `most`. Waits this long for the first.
    pub(super) async fn changes(
        &mut self,
        after: i64,
        most: usize,
        wait: Duration,
    ) -> Result<Vec<Change>, FeedError> {
        let (key, after) = (format!("{}changes", self.prefix), format!("{after}-0"));
        let (most, block) = (most.to_string(), wait.as_millis().max(1).to_string());
        let words = ["XREAD", "COUNT", &most, "BLOCK", &block, "STREAMS", &key, &after];
        let reply = self.ask(&words, wait).await?;
        changes_of(reply).ok_or_else(|| self.foreign())
    }

    /// The change at a position, if there is one.
    pub(super) async fn at(&mut self, position: i64) -> Result<Option<Change>, FeedError> {
        let (key, id) = (format!("{}changes", self.prefix), format!("{position}-0"));
        let reply = self.ask(&["XRANGE", &key, &id, &id], Duration::ZERO).await?;
        // As of the only stream of several.
        let stream = Reply::List(vec![Reply::List(vec![Reply::Text(key), reply])]);
        Ok(changes_of(stream).ok_or_else(|| self.foreign())?.pop())
    }

    async fn ask(&mut self, words: &[&str], wait: Duration) -> Result<Reply, FeedError> {
        let mut message = format!("*{}\r\n", words.len());
        for word in words {
            message.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        let exchange = async {
            self.connection.get_mut().write_all(message.as_bytes()).await?;
            read(&mut self.connection, MAX_DEPTH).await
        };
        match timeout(PATIENCE + wait, exchange).await {
            Err(_) => Err(FeedError::Silent(self.address.clone())),
            Ok(Err(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
                Err(self.foreign())
            }
            Ok(Err(error)) => Err(FeedError::Unreachable(self.address.clone(), error)),
            Ok(Ok(Reply::Error(message))) => Err(FeedError::Refused(self.address.clone(), message)),
            Ok(Ok(reply)) => Ok(reply),
        }
    }

    fn foreign(&self) -> FeedError {
        FeedError::Foreign(self.address.clone())
    }
}

/// Reads one reply.
fn read<'a, R: AsyncBufReadExt + Unpin + Send>(
    from: &'a mut R,
    depth: u32,
) -> Pin<Box<dyn Future<Output = std::io::Result<Reply>> + Send + 'a>> {
    Box::pin(async move {
        let odd = || std::io::Error::from(std::io::ErrorKind::InvalidData);
        let mut line = String::new();
        from.read_line(&mut line).await?;
        let line = line.strip_suffix("\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(odd)?;
        let number = || rest.parse::<i64>().map_err(|_| odd());
        match kind {
            "+" => Ok(Reply::Text(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Number(number()?)),
            "$" | "*" if number()? < 0 => Ok(Reply::Nothing),
            "$" => {
                let bytes = usize::try_from(number()?).map_err(|_| odd())?;
                if bytes > MAX_TEXT_BYTES {
                    return Err(odd());
                }
                let mut text = Vec::new();
                // As it comes: a server that only says so takes no memory.
                (&mut *from).take(bytes as u64 + 2).read_to_end(&mut text).await?;
                if text.len() < bytes + 2 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                text.truncate(bytes);
                Ok(Reply::Text(String::from_utf8_lossy(&text).into_owned()))
            }
            "*" if depth > 0 => {
                let entries = usize::try_from(number()?).map_err(|_| odd())?;
                if entries > MAX_ENTRIES {
                    return Err(odd());
                }
                let mut list = Vec::new();
                for _ in 0..entries {
                    list.push(read(from, depth - 1).await?);
                }
                Ok(Reply::List(list))
            }
            _ => Err(odd()),
        }
    })
}

/// The changes in a reply to `XREAD`: a list of streams, each a name and a list of entries, each a position
/// and a list of fields and values.
fn changes_of(reply: Reply) -> Option<Vec<Change>> {
    let list = |reply: Reply| match reply {
        Reply::List(entries) => Some(entries),
        _ => None,
    };
    if reply == Reply::Nothing {
        return Some(Vec::new());
    }
    let mut changes = Vec::new();
    for stream in list(reply)? {
        for entry in list(list(stream)?.pop()?)? {
            let [Reply::Text(position), Reply::List(fields)] =
                <[Reply; 2]>::try_from(list(entry)?).ok()?
            else {
                return None;
            };
            let mut change = Change {
                position: position.split_once('-')?.0.parse().ok()?,
                key: String::new(),
                kind: String::new(),
                json: String::new(),
                writer: String::new(),
            };
            let mut fields = fields.into_iter();
            while let (Some(Reply::Text(name)), Some(Reply::Text(value))) =
                (fields.next(), fields.next())
            {
                match name.as_str() {
                    "key" => change.key = value,
                    "kind" => change.kind = value,
                    "json" => change.json = value,
                    "writer" => change.writer = value,
                    _ => {}
                }
            }
            changes.push(change);
        }
    }
    Some(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn parse(text: &str) -> std::io::Result<Reply> {
        read(&mut text.as_bytes(), MAX_DEPTH).await
    }

    #[tokio::test]
    async fn changes_are_read_from_replies() {
        let fields = "*8\r\n$3\r\nkey\r\n$3\r\na/1\r\n$4\r\nkind\r\n$3\r\nput\r\n$4\r\njson\r\n$2\r\n{}\r\n\
                      $6\r\nwriter\r\n$0\r\n\r\n";
        let text = format!("*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$4\r\n12-0\r\n{fields}");
        let change = Change {
            position: 12,
            key: "a/1".to_owned(),
            kind: "put".to_owned(),
            json: "{}".to_owned(),
            writer: String::new(),
        };
        assert_eq!(changes_of(parse(&text).await.unwrap()), Some(vec![change]));
        assert_eq!(changes_of(parse("*-1\r\n").await.unwrap()), Some(Vec::new()));
        for odd in ["+OK\r\n", "*1\r\n:3\r\n", "*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"] {
            assert_eq!(changes_of(parse(odd).await.unwrap()), None, "{odd}");
        }
    }

    #[tokio::test]
    async fn a_refusal_does_not_repeat_the_password() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let variables = [(PREFIX, "p:"), (PASSWORD, "secret")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let service = Located {
            address: listener.local_addr().unwrap().to_string(),
            environment: crate::json::UniqueKeys(variables.into()),
        };
        let refuse = async {
            let mut client = listener.accept().await.unwrap().0;
            let reply =
                b"-ERR unknown command 'AUTH', with args beginning with: 'default' 'secret'\r\n";
            client.write_all(reply).await.unwrap();
            client
        };
        let (connected, _client) = tokio::join!(Feed::connect(&service), refuse);
        let sentence = connected.err().unwrap().to_string();
        assert!(sentence.contains("'default' '***'"), "{sentence}");
    }

    #[tokio::test]
    async fn what_is_no_reply_is_an_error() {
        for text in [
            "",
            "\r\n",
            "+OK",
            "$5\r\nabc\r\n",
            "$999999999999\r\n",
            "*9999999999\r\n",
            "?x\r\n",
            ":x\r\n",
        ] {
            assert!(parse(text).await.is_err(), "{text:?}");
        }
        assert!(parse(&"*1\r\n".repeat(20)).await.is_err());
        assert_eq!(parse("-NOAUTH no\r\n").await.unwrap(), Reply::Error("NOAUTH no".to_owned()));
    }
}
