//! Texts of a session: `cfm/show`, and its columns of the table `Interface`.

use super::session::Session;
use crate::protocol::{LinkValue, Status, Table};

impl Session {
    /// The lines of `cfm/show` on the session.
    pub fn show(&self, now_ms: u64) -> String {
        let up_down = |is_up: bool| if is_up { "up" } else { "down" };
        let wait_ms = |at_ms: u64| if at_ms == 0 { 0 } else { i128::from(at_ms) - i128::from(now_ms) };
        let config = &self.config;
        let extended = if config.is_extended { " extended" } else { "" };
        let forced = if self.forced.is_some() { " fault_override" } else { "" };
        let mut text = format!("---- {} ----\nMPID {}:{extended}{forced}\n", self.name, config.mpid);
        if !self.faults().is_empty() {
            text += &format!("\tfault: {}\n", self.faults());
        }
        text += &match self.health {
            Some(percent) => format!("\taverage health: {percent}\n"),
            None => "\taverage health: undefined\n".to_string(),
        };
        text += &format!("\topstate: {}\n", up_down(config.is_up));
        text += &format!("\tremote_opstate: {}\n", up_down(self.remote_is_up));
        text += &format!("\tinterval: {}ms\n", config.interval_ms);
        text += &format!("\tnext CCM tx: {}ms\n", wait_ms(self.next_tx_ms));
        text += &format!("\tnext fault check: {}ms\n", wait_ms(self.next_check_ms));
        for (mpid, remote) in &self.remotes {
            let (has_sent, state) = (remote.has_sent, up_down(remote.is_up));
            text += &format!("Remote MPID {mpid}\n\trecv since check: {has_sent}\n\topstate: {state}\n");
        }
        text
    }

    /// The values of its columns.
    pub fn status(&self) -> Status {
        let faults = self.faults();
        let names = faults.names().map(str::to_string).collect();
        let mpids = self.remote_mpids.iter().map(|mpid| *mpid as i64).collect();
        let mut status = Status::from([
            ((Table::Interface, "cfm_fault"), LinkValue::Flag(!faults.is_empty())),
            ((Table::Interface, "cfm_fault_status"), LinkValue::Texts(names)),
            (
                (Table::Interface, "cfm_flap_count"),
                LinkValue::Integer(i64::try_from(self.flap_count).unwrap_or(i64::MAX)),
            ),
            ((Table::Interface, "cfm_remote_mpids"), LinkValue::Integers(mpids)),
        ]);
        if let Some(percent) = self.health {
            status.insert((Table::Interface, "cfm_health"), LinkValue::Integer(percent.into()));
        }
        if self.config.is_extended {
            let state = if self.remote_is_up { "up" } else { "down" };
            status.insert((Table::Interface, "cfm_remote_opstate"), LinkValue::Text(state.to_string()));
        }
        status
    }
}
