//! [`Client`]: the client side of OVSDB, without I/O: a replica of chosen tables, a lock, and transactions.
//!
//! The owner sends the bytes of [`Client::take_output`] and hands received bytes to [`Client::input`]. The
//! other end may be a remote server or a [`crate::server::Server`] in the same process. After a lost
//! connection, or an error of [`Client::input`], the owner calls [`Client::reset`] and reconnects: the
//! replica stays readable meanwhile, and the changes reported for the new contents are their difference to
//! it.
//!
//! The owner supplies its schema. Tables and columns that the server lacks, or has with other types, are
//! omitted ([`Client::missing`]) and read as their defaults.

mod replica;
#[cfg(test)]
mod tests;
mod txn;
mod view;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

pub use replica::{Change, ChangeKind, Replica};
pub use txn::{ColumnValue, RowHandle, RowTarget, TxnBuilder, TxnOutcome};
pub use view::RowView;

use crate::jsonrpc::{FrameError, Framer, FramerLimits, MessageError, RpcMessage};
use crate::limits::{MAX_IN_FLIGHT, MAX_REPLY_BYTES};
use crate::schema::DatabaseSchema;
use crate::value::Uuid;
use wire::Wire;

/// Configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The owner's schema; its name is that of the database.
    pub schema: Arc<DatabaseSchema>,
    /// Tables to replicate and their columns; `None` is all columns.
    pub tables: Vec<(String, Option<Vec<String>>)>,
    /// A lock to ask for.
    pub lock: Option<String>,
}

impl ClientConfig {
    /// All tables and columns, no lock.
    pub fn all(schema: Arc<DatabaseSchema>) -> Self {
        let tables = schema.tables.iter().map(|table| (table.name.to_string(), None)).collect();
        ClientConfig { schema, tables, lock: None }
    }
}

/// State of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientState {
    /// Waits for the server's schema.
    Schema,
    /// Waits for the contents.
    Contents,
    /// The replica follows the server.
    Ready,
}

/// State of the client's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockState {
    /// No lock requested.
    None,
    /// Requested, without a reply yet.
    Asked,
    /// Another client has it.
    Waiting,
    /// This client has it.
    Held,
}

/// A fatal error of the connection, or a rejected call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The stream is not JSON within bounds.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// A JSON text is not a message.
    #[error(transparent)]
    RpcMessage(#[from] MessageError),
    /// The server rejected a required request.
    #[error("the database server refuses {method}: {error}")]
    Refused {
        /// The method.
        method: &'static str,
        /// The server's error.
        error: String,
    },
    /// The server sent an invalid message.
    #[error("the database server sent something unexpected: {0}")]
    Unexpected(String),
    /// Too many transactions are in flight.
    #[error("{0} transactions are in flight, which is the limit")]
    TooManyTransactions(usize),
}

/// A transaction's name within its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxnId(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MonitorKind {
    Since,
    Cond,
    Plain,
}

impl MonitorKind {
    fn method(self) -> &'static str {
        match self {
            MonitorKind::Since => "monitor_cond_since",
            MonitorKind::Cond => "monitor_cond",
            MonitorKind::Plain => "monitor",
        }
    }
}

enum Purpose {
    Schema,
    Monitor(MonitorKind),
    Lock,
    Echo,
    Txn { inserts: Vec<usize> },
}

/// Transactions of a client by outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TxnCounts {
    /// Sent.
    pub sent: u64,
    /// Took effect.
    pub success: u64,
    /// To be built again: their base had changed, or the connection broke.
    pub try_again: u64,
    /// The client did not hold the asserted lock.
    pub not_locked: u64,
    /// Failed.
    pub error: u64,
}

/// A client of one database.
pub struct Client {
    config: ClientConfig,
    framer: Framer,
    output: Vec<u8>,
    next_id: u64,
    in_flight: BTreeMap<u64, Purpose>,
    state: ClientState,
    lock: LockState,
    wire: Wire,
    replica: Replica,
    last_txn: Uuid,
    outcomes: Vec<(TxnId, TxnOutcome)>,
    counts: TxnCounts,
}

impl Client {
    /// Creates a client; its first output requests the schema.
    pub fn new(config: ClientConfig) -> Self {
        let replica = Replica::new(config.schema.clone());
        let mut client = Client {
            config,
            framer: Framer::default(),
            output: Vec::new(),
            next_id: 1,
            in_flight: BTreeMap::new(),
            state: ClientState::Schema,
            lock: LockState::None,
            wire: Wire::default(),
            replica,
            last_txn: Uuid::ZERO,
            outcomes: Vec::new(),
            counts: TxnCounts::default(),
        };
        client.reset();
        client
    }

    /// Restarts on a new connection. Transactions in flight end as [`TxnOutcome::Lost`].
    pub fn reset(&mut self) {
        self.framer = Framer::new(FramerLimits {
            bytes: MAX_REPLY_BYTES,
            nodes: usize::MAX,
            ..FramerLimits::default()
        });
        self.output.clear();
        for (id, purpose) in std::mem::take(&mut self.in_flight) {
            if matches!(purpose, Purpose::Txn { .. }) {
                self.ended(id, TxnOutcome::Lost);
            }
        }
        self.state = ClientState::Schema;
        self.lock = LockState::None;
        let name = Value::from(&*self.config.schema.name);
        self.request("get_schema", vec![name], Purpose::Schema);
        if let Some(lock) = self.config.lock.clone() {
            self.lock = LockState::Asked;
            self.request("lock", vec![Value::from(lock)], Purpose::Lock);
        }
    }

    fn request(&mut self, method: &str, params: Vec<Value>, purpose: Purpose) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.in_flight.insert(id, purpose);
        self.output
            .extend(RpcMessage::Request { id: Value::from(id), method: method.into(), params }.encode());
        id
    }

    /// Bytes to send to the server.
    pub fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Processes bytes from the server. After an error the connection is unusable.
    pub fn input(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.framer.feed(bytes);
        while let Some(json) = self.framer.next_text()? {
            self.message(RpcMessage::from_json(json)?)?;
        }
        Ok(())
    }

    /// The state of the client.
    pub fn state(&self) -> ClientState {
        self.state
    }

    /// The state of the client, by the name of OVS.
    pub fn state_name(&self) -> &'static str {
        let kind = || {
            self.in_flight.values().find_map(|purpose| match purpose {
                Purpose::Monitor(kind) => Some(*kind),
                _ => None,
            })
        };
        match self.state {
            ClientState::Schema => "DATA_SCHEMA_REQUESTED",
            ClientState::Ready => "MONITORING",
            ClientState::Contents => match kind() {
                Some(MonitorKind::Plain) => "DATA_MONITOR_REQUESTED",
                Some(MonitorKind::Cond) => "DATA_MONITOR_COND_REQUESTED",
                Some(MonitorKind::Since) | None => "DATA_MONITOR_COND_SINCE_REQUESTED",
            },
        }
    }

    /// The state of its lock.
    pub fn lock_state(&self) -> LockState {
        self.lock
    }

    /// The replicated contents.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The rows that differ since the last call.
    pub fn take_changes(&mut self) -> Vec<Change> {
        self.replica.take_changes()
    }

    /// Requested tables (`T`) and columns (`T.C`) that the server lacks or has with another type.
    pub fn missing(&self) -> &[String] {
        &self.wire.missing
    }

    /// Sends an echo request; any answer arrives through [`Client::input`].
    pub fn send_echo(&mut self) {
        self.request("echo", vec![], Purpose::Echo);
    }

    /// Whether an echo is unanswered.
    pub fn echo_pending(&self) -> bool {
        self.in_flight.values().any(|purpose| matches!(purpose, Purpose::Echo))
    }

    /// Sends a transaction. [`Client::take_outcomes`] returns its outcome, after the resulting changes.
    pub fn transact(&mut self, txn: TxnBuilder) -> Result<TxnId, ClientError> {
        if self.in_flight.len() >= MAX_IN_FLIGHT {
            return Err(ClientError::TooManyTransactions(MAX_IN_FLIGHT));
        }
        let (operations, inserts) = txn.into_parts();
        let name = Value::from(&*self.config.schema.name);
        let params = std::iter::once(name).chain(operations).collect();
        self.counts.sent += 1;
        Ok(TxnId(self.request("transact", params, Purpose::Txn { inserts })))
    }

    fn ended(&mut self, id: u64, outcome: TxnOutcome) {
        let count = match outcome {
            TxnOutcome::Success { .. } => &mut self.counts.success,
            TxnOutcome::TryAgain | TxnOutcome::Lost => &mut self.counts.try_again,
            TxnOutcome::NotLocked => &mut self.counts.not_locked,
            TxnOutcome::Error(_) => &mut self.counts.error,
        };
        *count += 1;
        self.outcomes.push((TxnId(id), outcome));
    }

    /// Its transactions so far.
    pub fn txn_counts(&self) -> TxnCounts {
        self.counts
    }

    /// Transactions that ended since the last call.
    pub fn take_outcomes(&mut self) -> Vec<(TxnId, TxnOutcome)> {
        std::mem::take(&mut self.outcomes)
    }

    fn message(&mut self, message: RpcMessage) -> Result<(), ClientError> {
        match message {
            RpcMessage::Request { id, method, params } => {
                let answer = if method == "echo" {
                    RpcMessage::Reply { id, result: Value::Array(params) }
                } else {
                    RpcMessage::Error { id, error: Value::from("unknown method") }
                };
                self.output.extend(answer.encode());
                Ok(())
            }
            RpcMessage::Notification { method, params } => self.notification(&method, params),
            RpcMessage::Reply { id, result } => match self.purpose(&id) {
                Some((id, purpose)) => self.reply(id, purpose, result),
                None => Err(ClientError::Unexpected(format!("a reply to request {id}, which was not made"))),
            },
            RpcMessage::Error { id, error } => match self.purpose(&id) {
                Some((id, purpose)) => self.refusal(id, purpose, &error),
                None => {
                    Err(ClientError::Unexpected(format!("an error for request {id}, which was not made")))
                }
            },
        }
    }

    fn purpose(&mut self, id: &Value) -> Option<(u64, Purpose)> {
        let id = id.as_u64()?;
        self.in_flight.remove(&id).map(|purpose| (id, purpose))
    }

    fn notification(&mut self, method: &str, mut params: Vec<Value>) -> Result<(), ClientError> {
        let is_lock = || params.first().and_then(Value::as_str) == self.config.lock.as_deref();
        match (method, params.len()) {
            ("locked", 1) if is_lock() => self.lock = LockState::Held,
            ("stolen", 1) if is_lock() => self.lock = LockState::Waiting,
            ("update", 2) => {
                return self.wire.update(&mut self.replica, &params[1], false).map_err(unexpected);
            }
            ("update2", 2) => {
                return self.wire.update(&mut self.replica, &params[1], true).map_err(unexpected);
            }
            ("update3", 3) => {
                self.note_txn(&params[1]);
                let updates = params.remove(2);
                return self.wire.update(&mut self.replica, &updates, true).map_err(unexpected);
            }
            ("monitor_canceled", _) => {
                return Err(ClientError::Unexpected("the monitor was canceled".into()));
            }
            _ => {}
        }
        Ok(())
    }

    fn note_txn(&mut self, id: &Value) {
        self.last_txn = id.as_str().and_then(|text| text.parse().ok()).unwrap_or_default();
    }

    fn reply(&mut self, id: u64, purpose: Purpose, result: Value) -> Result<(), ClientError> {
        match purpose {
            Purpose::Schema => {
                let remote =
                    DatabaseSchema::from_json(&result).map_err(|error| unexpected(error.to_string()))?;
                self.wire = Wire::new(&self.config, &remote);
                self.state = ClientState::Contents;
                self.monitor(MonitorKind::Since);
            }
            Purpose::Monitor(kind) => {
                let updates = match (kind, result) {
                    (MonitorKind::Since, Value::Array(mut parts)) if parts.len() == 3 => {
                        self.note_txn(&parts[1]);
                        parts.remove(2)
                    }
                    (MonitorKind::Since, other) => {
                        return Err(unexpected(format!("monitor_cond_since: {other}")));
                    }
                    (_, updates) => updates,
                };
                self.wire
                    .snapshot(&mut self.replica, &updates, kind != MonitorKind::Plain)
                    .map_err(unexpected)?;
                self.state = ClientState::Ready;
            }
            // A "locked" notification cannot come before this reply.
            Purpose::Lock => {
                let locked = result["locked"].as_bool().unwrap_or(false);
                self.lock = if locked { LockState::Held } else { LockState::Waiting };
            }
            Purpose::Echo => {}
            Purpose::Txn { inserts } => {
                self.ended(id, TxnOutcome::from_results(&inserts, result));
            }
        }
        Ok(())
    }

    fn refusal(&mut self, id: u64, purpose: Purpose, error: &Value) -> Result<(), ClientError> {
        let refused = |method| Err(ClientError::Refused { method, error: txn::error_text(error) });
        match purpose {
            Purpose::Schema => return refused("get_schema"),
            Purpose::Lock => return refused("lock"),
            Purpose::Monitor(MonitorKind::Since) => self.monitor(MonitorKind::Cond),
            Purpose::Monitor(MonitorKind::Cond) => self.monitor(MonitorKind::Plain),
            Purpose::Monitor(MonitorKind::Plain) => return refused("monitor"),
            Purpose::Echo => {}
            Purpose::Txn { .. } => self.ended(id, TxnOutcome::Error(txn::error_text(error))),
        }
        Ok(())
    }

    fn monitor(&mut self, kind: MonitorKind) {
        let name = Value::from(&*self.config.schema.name);
        let mut params = vec![name.clone(), json!(["monid", name]), self.wire.requests()];
        if kind == MonitorKind::Since {
            params.push(Value::from(Uuid::ZERO.to_string()));
        }
        self.request(kind.method(), params, Purpose::Monitor(kind));
    }

    /// Id of the server's last transaction; zero if unknown.
    pub fn last_txn(&self) -> Uuid {
        self.last_txn
    }
}

fn unexpected(text: String) -> ClientError {
    ClientError::Unexpected(text)
}
