//! Members of a bond: links with delays, and the choice of the active one.

use super::{Bucket, State};
use flow::{MacAddr, OfPort};

/// Identifies a member as long as it belongs to the bond.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemberId(u32);

/// An interface of a bond, with the state of its link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberLink {
    /// Its name.
    pub name: String,
    /// Its OpenFlow number.
    pub port: OfPort,
    /// Its address.
    pub mac: MacAddr,
    /// Its device has a carrier.
    pub carrier: bool,
    /// Carrier and link protocols let it send.
    pub may_enable: bool,
}

/// A member.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: MemberId,
    pub(super) name: Box<str>,
    pub(super) port: OfPort,
    pub(super) mac: MacAddr,
    pub(super) carrier: bool,
    pub(super) may_enable: bool,
    pub(super) enabled: bool,
    pub(super) is_primary: bool,
    /// When it is enabled or disabled, if its link stays as it is.
    pub(super) delay_ends_ms: Option<u64>,
}

impl State {
    pub(super) fn member(&self, id: MemberId) -> Option<&Member> {
        self.members.iter().find(|m| m.id == id)
    }

    pub(super) fn at(&self, name: &str) -> Option<usize> {
        self.members.iter().position(|m| &*m.name == name)
    }

    /// Replaces the members: known ones stay as they are, apart from their links.
    pub fn set_members(&mut self, links: &[MemberLink]) {
        let gone = |m: &Member| !links.iter().any(|link| link.name == *m.name);
        let gone: Vec<MemberId> = self.members.iter().filter(|m| gone(m)).map(|m| m.id).collect();
        for id in gone {
            self.remove(id);
        }
        for link in links {
            match self.at(&link.name) {
                Some(at) => {
                    let member = &mut self.members[at];
                    self.changed |= member.port != link.port;
                    (member.port, member.mac) = (link.port, link.mac);
                    (member.carrier, member.may_enable) = (link.carrier, link.may_enable);
                }
                None => self.add(link),
            }
        }
    }

    fn add(&mut self, link: &MemberLink) {
        let id = MemberId(self.next_member);
        self.next_member += 1;
        self.changed = true;
        let at = self.members.partition_point(|m| *m.name < *link.name);
        self.members.insert(
            at,
            Member {
                id,
                name: link.name.as_str().into(),
                port: link.port,
                mac: link.mac,
                carrier: link.carrier,
                may_enable: link.may_enable,
                enabled: false,
                is_primary: self.settings.primary.as_deref() == Some(&link.name),
                delay_ends_ms: None,
            },
        );
        self.enable(at, link.carrier);
    }

    fn remove(&mut self, id: MemberId) {
        let Some(at) = self.members.iter().position(|m| m.id == id) else { return };
        self.changed = true;
        self.enable(at, false);
        self.members.remove(at);
        for bucket in self.buckets.iter_mut().flat_map(|buckets| buckets.iter_mut()) {
            if bucket.member == Some(id) {
                bucket.member = None;
            }
        }
        if self.active == Some(id) {
            self.active = None;
            self.learning_due = true;
        }
    }

    /// Sets the state of a member's link; `false` if there is no such member.
    pub fn set_link(&mut self, name: &str, carrier: bool, may_enable: bool) -> bool {
        let Some(at) = self.at(name) else { return false };
        let member = &mut self.members[at];
        (member.carrier, member.may_enable) = (carrier, may_enable);
        true
    }

    pub(super) fn enable(&mut self, at: usize, enable: bool) {
        let member = &mut self.members[at];
        member.delay_ends_ms = None;
        if member.enabled == enable {
            return;
        }
        member.enabled = enable;
        let (id, name) = (member.id, member.name.clone());
        self.changed = true;
        if enable {
            self.turns.push_back(id);
        } else {
            self.learning_due = true;
            self.turns.retain(|other| *other != id);
        }
        let line = format!("member {name}: {}", if enable { "enabled" } else { "disabled" });
        self.line(line);
    }

    /// Begins, ends or completes the delay of a member whose link changed.
    pub(super) fn follow_link(&mut self, at: usize, now_ms: u64) {
        let member = &self.members[at];
        let up = member.carrier && member.may_enable;
        if (up == member.enabled) == member.delay_ends_ms.is_some() {
            let state = if up { "up" } else { "down" };
            let mut lines = vec![format!("link state {state}")];
            let delay_ms = if up { self.settings.updelay_ms } else { self.settings.downdelay_ms };
            let becomes = if up { "enabled" } else { "disabled" };
            let member = &mut self.members[at];
            if up == member.enabled {
                member.delay_ends_ms = None;
                lines.push(format!("will not be {}", if up { "disabled" } else { "enabled" }));
            } else {
                member.delay_ends_ms = Some(now_ms.saturating_add(delay_ms));
                if delay_ms > 0 {
                    lines.push(format!("will be {becomes} if it stays {state} for {delay_ms} ms"));
                }
            }
            let name = self.members[at].name.clone();
            lines.into_iter().for_each(|line| self.line(format!("member {name}: {line}")));
        }
        if self.members[at].delay_ends_ms.is_some_and(|end_ms| now_ms >= end_ms) {
            self.enable(at, up);
        }
    }

    /// The member to become active: the primary, the one of before, any enabled one, else the first to be enabled.
    fn candidate(&self) -> Option<usize> {
        let enabled =
            |which: &dyn Fn(&super::Member) -> bool| self.members.iter().position(|m| m.enabled && which(m));
        enabled(&|m| m.is_primary)
            .or_else(|| enabled(&|m| m.mac == self.active_mac))
            .or_else(|| enabled(&|_| true))
            .or_else(|| {
                let waiting = self.members.iter().enumerate().filter(|(_, m)| m.may_enable);
                let by_end = waiting.filter_map(|(at, m)| Some((m.delay_ends_ms?, at)));
                by_end.min().map(|(_, at)| at)
            })
    }

    pub(super) fn choose_active(&mut self, now_ms: u64) {
        let before = self.active;
        let bond = self.name.clone();
        let Some(at) = self.candidate() else {
            self.active = None;
            if before.is_some() {
                self.active_mac = MacAddr::default();
                self.changed = true;
                self.line(format!("bond {bond}: all members disabled"));
            }
            return;
        };
        let member = &self.members[at];
        let (id, name, mac) = (member.id, member.name.clone(), member.mac);
        if member.enabled {
            self.line(format!("bond {bond}: active member is now {name}"));
        } else {
            let left_ms = member.delay_ends_ms.map_or(0, |end_ms| end_ms.saturating_sub(now_ms));
            self.line(format!(
                "bond {bond}: active member is now {name}, skipping remaining {left_ms} ms updelay (since no member was enabled)"
            ));
            self.enable(at, true);
        }
        self.learning_due = true;
        if before != Some(id) {
            (self.active, self.active_mac, self.changed) = (Some(id), mac, true);
        }
    }

    /// `bond/set-active-member`: the answer.
    ///
    /// # Errors
    /// There is no such member, or it is disabled.
    pub fn make_active(&mut self, name: &str) -> Result<&'static str, &'static str> {
        let at = self.at(name).ok_or("no such member")?;
        let member = &self.members[at];
        if !member.enabled {
            return Err("cannot make disabled member active");
        }
        if self.active == Some(member.id) {
            return Ok("no change");
        }
        (self.active, self.active_mac, self.changed) = (Some(member.id), member.mac, true);
        self.learning_due = true;
        self.line(format!("bond {}: active member is now {name}", self.name));
        Ok("done")
    }

    /// `bond/enable-member` and `bond/disable-member`, until the link of the member changes.
    ///
    /// # Errors
    /// There is no such member.
    pub fn set_enabled(&mut self, name: &str, enable: bool) -> Result<&'static str, &'static str> {
        let at = self.at(name).ok_or("no such member")?;
        self.enable(at, enable);
        Ok(if enable { "enabled" } else { "disabled" })
    }

    /// `bond/migrate`: gives a hash value of a `balance-slb` bond another member.
    ///
    /// # Errors
    /// The bond has another mode, the hash is no number, or the member does not exist or is disabled.
    pub fn migrate(&mut self, hash: &str, name: &str) -> Result<&'static str, &'static str> {
        if self.settings.mode != super::BondMode::BalanceSlb {
            return Err("not an SLB bond");
        }
        if !hash.bytes().all(|b| b.is_ascii_digit()) {
            return Err("bad hash");
        }
        let bucket = hash.bytes().fold(0u8, |n, b| n.wrapping_mul(10).wrapping_add(b - b'0'));
        let at = self.at(name).ok_or("no such member")?;
        let member = &self.members[at];
        if !member.enabled {
            return Err("cannot migrate to disabled member");
        }
        let id = member.id;
        // Falling back to one member, the bond has no hash values.
        if let Some(buckets) = &mut self.buckets {
            let known: &mut Bucket = &mut buckets[usize::from(bucket)];
            known.member = Some(id);
        }
        self.changed = true;
        Ok("migrated")
    }

    /// The next enabled member in turn.
    pub(super) fn next_in_turn(&mut self) -> Option<MemberId> {
        let id = self.turns.pop_front()?;
        self.turns.push_back(id);
        Some(id)
    }
}
