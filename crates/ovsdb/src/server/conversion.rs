//! The method `convert`: the database gets the schema of the request.
//!
//! The owner's programs are built for one schema, and a database file is converted to it at each start, so another
//! schema is refused. Clients notice the conversion to the same schema as they notice any other.

use serde_json::{Value, json};

use super::methods::{Answer, params_error, plain};
use super::{Origin, Server};
use crate::error::{ErrorKind, OpError};
use crate::schema::DatabaseSchema;

impl Server {
    /// The answer. After sending a good one, end the sessions that are not database-change-aware.
    pub(super) fn convert(&mut self, params: &[Value]) -> Answer {
        let name = self.database_param("convert", params)?;
        let hosted = &self.databases[&name];
        if hosted.read_only {
            let details = format!("convert: database {name} is read-only");
            return Err(OpError::new(ErrorKind::NotAllowed, details).into());
        }
        let [_, new] = params else {
            return Err(params_error("convert", params, "[<db-name>, <database-schema>]"));
        };
        let new = DatabaseSchema::from_json(new)
            .map_err(|e| OpError::syntax(new, format!("this is not a database schema: {e}")))?;
        if new.name != name {
            let details = format!("the schema is that of database {}, not of {name}", new.name);
            return Err(OpError::new(ErrorKind::Parameters, details).into());
        }
        // Contents that do not fit are the reason to name first.
        hosted.db.convert(std::sync::Arc::new(new.clone())).map_err(|e| {
            OpError::new(
                ErrorKind::Constraint,
                format!("the contents do not fit the new schema: {}", e.problem),
            )
        })?;
        let own = hosted.db.schema();
        if (&new.version, &new.tables) != (&own.version, &own.tables) {
            let differs = match new.version == own.version {
                true => format!("the new schema has the same version, {}, and other tables", own.version),
                false => format!("the new schema has version {:?}", new.version),
            };
            let details = format!(
                "{name} is part of the switch, which works with its own schema {} only and converts the database to it at \
                 each start; {differs}",
                own.version
            );
            return Err(OpError::new(ErrorKind::NotAllowed, details).into());
        }
        self.cancel_all(&name, |origin| origin != Origin::Owner);
        plain(json!({}))
    }
}
