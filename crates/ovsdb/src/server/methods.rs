//! The methods that clients call.

use std::sync::Arc;

use serde_json::{Value, json};

use super::locks::Refused;
use super::monitor::{Monitor, Version};
use super::{Kind, Server, SessionId, Time};
use crate::error::{ErrorKind, OpError};
use crate::jsonrpc::RpcMessage;
use crate::limits::{MAX_LOCKS, MAX_MONITORS, MONITORS_GRANTED};
use crate::value::is_identifier;

/// The reply to a request and its dependence on commits; an error is a string or an `<error>`.
pub(super) type Answer = Result<(Value, Kind), Value>;

pub(super) fn plain(result: Value) -> Answer {
    Ok((result, Kind::Plain))
}

impl From<OpError> for Value {
    fn from(error: OpError) -> Value {
        error.to_json()
    }
}

pub(super) fn params_error(method: &str, params: &[Value], wanted: &str) -> Value {
    OpError::syntax(&Value::Array(params.to_vec()), format!("the params of {method} must be {wanted}")).into()
}

impl Server {
    pub(super) fn message(&mut self, session: SessionId, message: RpcMessage, now: Time) {
        match message {
            RpcMessage::Request { id, method, params } => self.request(session, id, &method, params, now),
            RpcMessage::Notification { method, params } => {
                if let ("cancel", [id]) = (method.as_str(), params.as_slice()) {
                    self.cancel(session, id);
                }
            }
            // The server sends no requests, except echo requests of its owner.
            RpcMessage::Reply { .. } | RpcMessage::Error { .. } => {}
        }
    }

    fn request(&mut self, session: SessionId, id: Value, method: &str, params: Vec<Value>, now: Time) {
        if method == "transact" {
            match self.database_param(method, &params) {
                Ok(name) => {
                    let operations = params.into_iter().skip(1).collect();
                    self.transact(session, id, name, operations, now);
                }
                Err(error) => self.send(session, RpcMessage::Error { id, error }, Kind::Plain),
            }
            return;
        }
        match self.answer(session, method, params) {
            Ok((result, kind)) => {
                self.send(session, RpcMessage::Reply { id, result }, kind);
                if method == "convert" {
                    self.end_unaware("the database was converted to its schema");
                }
            }
            Err(error) => self.send(session, RpcMessage::Error { id, error }, Kind::Plain),
        }
    }

    fn answer(&mut self, session: SessionId, method: &str, params: Vec<Value>) -> Answer {
        match method {
            "echo" => plain(Value::Array(params)),
            "list_dbs" => plain(self.databases.keys().map(|name| Value::from(&**name)).collect()),
            "get_schema" => {
                let name = self.database_param(method, &params)?;
                plain(self.databases[&name].db.schema().to_json())
            }
            "get_server_id" => plain(Value::from(self.server_id.to_string())),
            "set_db_change_aware" => match params.as_slice() {
                [Value::Bool(aware)] => {
                    if let Some(session) = self.sessions.get_mut(&session) {
                        session.change_aware = *aware;
                    }
                    plain(json!({}))
                }
                _ => Err(params_error(method, &params, "[<boolean>]")),
            },
            "monitor" => self.monitor(session, method, params, Version::V1),
            "monitor_cond" if self.conditional => self.monitor(session, method, params, Version::V2),
            "monitor_cond_since" if self.conditional => self.monitor(session, method, params, Version::V3),
            "monitor_cond_change" => self.monitor_cond_change(session, params),
            "monitor_cancel" => self.monitor_cancel(session, &params),
            "lock" => self.lock(session, method, &params, false),
            "steal" => self.lock(session, method, &params, true),
            "unlock" => self.unlock(session, &params),
            "convert" => self.convert(&params),
            _ => Err(Value::from("unknown method")),
        }
    }

    /// The database that the first parameter names.
    pub(super) fn database_param(&self, method: &str, params: &[Value]) -> Result<Arc<str>, Value> {
        let Some(Value::String(name)) = params.first() else {
            return Err(params_error(method, params, "an array that begins with a database's name"));
        };
        match self.databases.get_key_value(name.as_str()) {
            Some((name, _)) => Ok(name.clone()),
            None => {
                let details = format!("{method}: there is no database {name}");
                Err(OpError::new(ErrorKind::UnknownDatabase, details)
                    .at(&Value::Array(params.to_vec()))
                    .into())
            }
        }
    }

    fn monitor(&mut self, session: SessionId, method: &str, params: Vec<Value>, version: Version) -> Answer {
        let database = self.database_param(method, &params)?;
        let (id, requests) = match (params.as_slice(), version) {
            ([_, id, requests], Version::V1 | Version::V2) => (id, requests),
            ([_, id, requests, Value::String(_)], Version::V3) => (id, requests),
            (_, Version::V3) => {
                return Err(params_error(
                    method,
                    &params,
                    "[<db-name>, <json-value>, <requests>, <last-txn-id>]",
                ));
            }
            _ => return Err(params_error(method, &params, "[<db-name>, <json-value>, <requests>]")),
        };
        let hosted = &self.databases[&database];
        let all: usize = self.sessions.values().map(|session| session.monitors.len()).sum();
        let Some(session) = self.sessions.get_mut(&session) else { return plain(Value::Null) };
        let key = id.to_string();
        if session.monitors.contains_key(&key) {
            return Err(OpError::syntax(id, "the session has a monitor of this id").into());
        }
        let (limit, of) = (self.limits.monitors, session.monitors.len());
        if of >= MONITORS_GRANTED && all >= limit {
            self.counters.monitors_refused += 1;
            let details = format!("all sessions together have {all} monitors, and {limit} is the limit");
            return Err(OpError::new(ErrorKind::Resources, details).into());
        }
        if of >= MAX_MONITORS {
            self.counters.monitors_refused += 1;
            let details = format!("the session has {MAX_MONITORS} monitors, which is the limit");
            return Err(OpError::new(ErrorKind::Resources, details).into());
        }
        let monitor = Monitor::parse(id.clone(), hosted.db.schema(), version, requests)?;
        let initial = monitor.initial(&hosted.db);
        session.monitors.insert(key, monitor);
        let result = match version {
            // No history is kept, so a reconnecting client gets the whole contents.
            Version::V3 => json!([false, hosted.last_txn.to_string(), initial]),
            _ => initial,
        };
        Ok((result, Kind::State))
    }

    fn monitor_cond_change(&mut self, id: SessionId, params: Vec<Value>) -> Answer {
        let [old_id, new_id, requests] = params.as_slice() else {
            let wanted = "[<json-value>, <json-value>, <requests>]";
            return Err(params_error("monitor_cond_change", &params, wanted));
        };
        let Some(session) = self.sessions.get_mut(&id) else { return plain(Value::Null) };
        let (old_key, new_key) = (old_id.to_string(), new_id.to_string());
        if session.monitors.get(&old_key).is_none_or(|monitor| monitor.version == Version::V1) {
            return Err(OpError::syntax(old_id, "the session has no conditional monitor of this id").into());
        }
        if old_key != new_key && session.monitors.contains_key(&new_key) {
            return Err(OpError::syntax(new_id, "the session has a monitor of this id").into());
        }
        let Some(mut monitor) = session.monitors.remove(&old_key) else { return plain(json!({})) };
        let hosted = &self.databases[&monitor.database];
        let changed = monitor.change_conditions(&hosted.db, requests);
        if changed.is_ok() {
            monitor.id = new_id.clone();
        }
        let notification = match &changed {
            Ok(Some(updates)) => Some(monitor.notification(updates.clone(), hosted.last_txn)),
            _ => None,
        };
        session.monitors.insert(if changed.is_ok() { new_key } else { old_key }, monitor);
        changed?;
        if let Some((method, params)) = notification {
            self.send(id, RpcMessage::Notification { method, params }, Kind::State);
        }
        Ok((json!({}), Kind::State))
    }

    fn monitor_cancel(&mut self, session: SessionId, params: &[Value]) -> Answer {
        let [id] = params else {
            return Err(params_error("monitor_cancel", params, "[<json-value>]"));
        };
        let removed =
            self.sessions.get_mut(&session).and_then(|session| session.monitors.remove(&id.to_string()));
        if removed.is_some() { plain(json!({})) } else { Err(Value::from("unknown monitor")) }
    }

    fn lock_param<'a>(&self, method: &str, params: &'a [Value]) -> Result<&'a str, Value> {
        match params {
            [Value::String(name)] if is_identifier(name) => Ok(name),
            _ => Err(params_error(method, params, "[<id>]")),
        }
    }

    fn lock(&mut self, session: SessionId, method: &str, params: &[Value], steal: bool) -> Answer {
        let name = self.lock_param(method, params)?;
        match self.locks.request(session, name, steal) {
            Ok((locked, victim)) => {
                if let Some(victim) = victim {
                    self.notify_lock(victim, "stolen", name);
                }
                plain(json!({"locked": locked}))
            }
            Err(Refused::AlreadyQueued) => {
                let details = format!("the session already asked for lock {name}: unlock it first");
                Err(OpError::syntax(&Value::Array(params.to_vec()), details).into())
            }
            Err(Refused::TooMany) => {
                let details = format!("the session has {MAX_LOCKS} locks, which is the limit");
                Err(OpError::new(ErrorKind::Resources, details).into())
            }
        }
    }

    fn unlock(&mut self, session: SessionId, params: &[Value]) -> Answer {
        let name = self.lock_param("unlock", params)?;
        let Some(heir) = self.locks.release(session, name) else {
            let details = format!("the session did not ask for lock {name}");
            return Err(OpError::syntax(&Value::Array(params.to_vec()), details).into());
        };
        if let Some(heir) = heir {
            self.notify_lock(heir, "locked", name);
        }
        plain(json!({}))
    }
}
