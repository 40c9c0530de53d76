//! Group modifications (OpenFlow 1.3 §6.7, 1.5 §6.7): checks, and their effect on a bridge's groups.

use super::{Group, Groups};
use flow::{Match, OfPort};
use ofp_actions::put_actions;
use ofp_wire::Writer;
use openflow::msg::group::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, Bucket as BucketDesc, GROUP_ALL, Group as GroupDesc, GroupMod,
    GroupModCommand, GroupType,
};
use openflow::{ErrorKind, GROUP_ANY, Version};

/// Maximum groups of a bridge.
pub const MAX_GROUPS: usize = 1 << 20;
/// Maximum buckets of all groups of a bridge.
pub const MAX_BUCKETS: usize = 4 << 20;
/// Maximum bytes of the buckets of a group: they must fit a message of any version.
const MAX_DESC_BYTES: usize = 60 << 10;
/// Bytes of a bucket beside its actions, with all properties.
const BUCKET_BYTES: usize = 32;
/// `OFPG_MAX`.
const GROUP_MAX: u32 = 0xffff_ff00;
/// `OFPG_BUCKET_MAX`.
const BUCKET_MAX: u32 = 0xffff_ff00;

type Res<T> = Result<T, ErrorKind>;

/// Result of a group modification.
#[derive(Debug, PartialEq, Eq)]
pub enum GroupChange {
    /// A group was added or modified, or nothing changed.
    Changed,
    /// These groups were deleted, and their rules are to be removed.
    Deleted(Vec<u32>),
}

impl Groups {
    /// Executes a group modification.
    ///
    /// # Errors
    /// The error to reply with; nothing has changed then.
    pub fn change(&mut self, m: &GroupMod, now_ms: u64) -> Res<GroupChange> {
        let id = m.group.id;
        match m.command {
            GroupModCommand::Delete => return Ok(GroupChange::Deleted(self.delete(id))),
            GroupModCommand::Add => self.add(&m.group, now_ms)?,
            GroupModCommand::Modify => self.modify(&m.group)?,
            GroupModCommand::AddOrModify if self.get(id).is_some() => self.modify(&m.group)?,
            GroupModCommand::AddOrModify => self.add(&m.group, now_ms)?,
            GroupModCommand::InsertBucket => self.change_buckets(m, inserted)?,
            GroupModCommand::RemoveBucket => self.change_buckets(m, removed)?,
        }
        Ok(GroupChange::Changed)
    }

    /// Sets the time of the creation of a group; returns whether it was another one.
    pub(crate) fn date(&mut self, id: u32, created_ms: u64) -> bool {
        let Some(old) = self.get(id).filter(|group| group.created_ms != created_ms).cloned() else {
            return false;
        };
        let new = Group::new(&old.desc(), created_ms);
        let (packets, bytes) = old.counter.counts();
        new.counter.credit(packets, bytes);
        keep_counts(&old, &new);
        self.insert(new);
        true
    }

    fn delete(&mut self, id: u32) -> Vec<u32> {
        if id != GROUP_ALL {
            return if self.remove(id) { vec![id] } else { Vec::new() };
        }
        let all = std::mem::take(self);
        all.parts.iter().flat_map(|part| part.keys().copied()).collect()
    }

    fn add(&mut self, desc: &GroupDesc, now_ms: u64) -> Res<()> {
        check(desc)?;
        if self.get(desc.id).is_some() {
            return Err(ErrorKind::GmfcGroupExists);
        }
        if self.len >= MAX_GROUPS {
            return Err(ErrorKind::GmfcOutOfGroups);
        }
        self.set(desc, now_ms)
    }

    fn modify(&mut self, desc: &GroupDesc) -> Res<()> {
        check(desc)?;
        let created_ms = self.get(desc.id).ok_or(ErrorKind::GmfcUnknownGroup)?.created_ms;
        self.set(desc, created_ms)
    }

    fn change_buckets(
        &mut self,
        m: &GroupMod,
        change: fn(&GroupDesc, &GroupMod) -> Res<Vec<BucketDesc>>,
    ) -> Res<()> {
        // As OVS does: weights fit every type here, and the type of the message decides about watched ports, since most
        // controllers leave it at "all".
        check_ids(&m.group.buckets)?;
        m.group.buckets.iter().try_for_each(|b| check_watch(b, m.group.ty))?;
        let old = self.get(m.group.id).cloned().ok_or(ErrorKind::GmfcUnknownGroup)?;
        let mut desc = old.desc();
        desc.buckets = change(&desc, m)?;
        check_ids(&desc.buckets)?;
        self.set(&desc, old.created_ms)?;
        // The buckets that stay keep their statistics.
        if let Some(new) = self.get(m.group.id) {
            keep_counts(&old, new);
        }
        Ok(())
    }

    fn set(&mut self, desc: &GroupDesc, created_ms: u64) -> Res<()> {
        let before = self.get(desc.id).map_or(0, |group| group.buckets.len());
        if self.buckets - before + desc.buckets.len() > MAX_BUCKETS || desc_bytes(desc) > MAX_DESC_BYTES {
            return Err(ErrorKind::GmfcOutOfBuckets);
        }
        self.insert(Group::new(desc, created_ms));
        Ok(())
    }
}

fn keep_counts(old: &Group, new: &Group) {
    for bucket in &new.buckets {
        if let Some(before) = old.buckets.iter().find(|b| b.id == bucket.id) {
            let (packets, bytes) = before.counter.counts();
            bucket.counter.credit(packets, bytes);
        }
    }
}

/// Bytes that describe a group in a message, in the version with the longest form.
fn desc_bytes(desc: &GroupDesc) -> usize {
    let anything = Match::catchall();
    let in_version = |version| {
        let mut w = Writer::new(version);
        for bucket in &desc.buckets {
            put_actions(&mut w, bucket.actions.iter(), &anything);
        }
        desc.buckets.len() * BUCKET_BYTES + w.buf.len()
    };
    in_version(Version::V10).max(in_version(Version::V13))
}

/// Consistency of a group, as a modification leaves it.
fn check(desc: &GroupDesc) -> Res<()> {
    if desc.id > GROUP_MAX {
        return Err(ErrorKind::GmfcInvalidGroup);
    }
    if desc.ty == GroupType::Indirect && desc.buckets.len() != 1 {
        return Err(ErrorKind::GmfcInvalidGroup);
    }
    check_ids(&desc.buckets)?;
    desc.buckets.iter().try_for_each(|b| check_bucket(b, desc.ty))?;
    match &desc.selection {
        Some(s) if desc.ty != GroupType::Select || !matches!(s.method.as_str(), "" | "hash" | "dp_hash") => {
            Err(ErrorKind::BpcBadValue)
        }
        Some(s) if !s.fields.is_empty() && s.method != "hash" => Err(ErrorKind::BpcBadValue),
        Some(_) | None => Ok(()),
    }
}

fn check_ids(buckets: &[BucketDesc]) -> Res<()> {
    let mut ids: Vec<u32> = buckets.iter().map(|b| b.id).collect();
    ids.sort_unstable();
    if ids.windows(2).any(|pair| pair[0] == pair[1]) || ids.last().is_some_and(|id| *id > BUCKET_MAX) {
        return Err(ErrorKind::GmfcBadBucket);
    }
    Ok(())
}

fn check_bucket(b: &BucketDesc, ty: GroupType) -> Res<()> {
    if b.weight != 0 && ty != GroupType::Select {
        return Err(ErrorKind::GmfcInvalidGroup);
    }
    check_watch(b, ty)
}

fn check_watch(b: &BucketDesc, ty: GroupType) -> Res<()> {
    let watches = b.watch_port != OfPort::NONE || b.watch_group != GROUP_ANY;
    match ty {
        GroupType::All | GroupType::Indirect if watches => Err(ErrorKind::GmfcWatchUnsupported),
        GroupType::FastFailover if !watches => Err(ErrorKind::GmfcInvalidGroup),
        GroupType::All | GroupType::Indirect | GroupType::Select | GroupType::FastFailover => Ok(()),
    }
}

/// The buckets with others inserted at the place of the command.
fn inserted(old: &GroupDesc, m: &GroupMod) -> Res<Vec<BucketDesc>> {
    let exists = |b: &BucketDesc| old.buckets.iter().any(|there| there.id == b.id);
    if m.group.buckets.iter().any(exists) {
        return Err(ErrorKind::GmfcBucketExists);
    }
    let at = match m.command_bucket_id {
        BUCKET_FIRST => 0,
        BUCKET_LAST => old.buckets.len(),
        id => 1 + place_of(old, id)?,
    };
    let mut buckets = old.buckets.clone();
    buckets.splice(at..at, m.group.buckets.iter().cloned());
    Ok(buckets)
}

/// The buckets without those of the command.
fn removed(old: &GroupDesc, m: &GroupMod) -> Res<Vec<BucketDesc>> {
    let mut buckets = old.buckets.clone();
    match m.command_bucket_id {
        BUCKET_ALL => buckets.clear(),
        BUCKET_FIRST if !buckets.is_empty() => drop(buckets.remove(0)),
        BUCKET_LAST => drop(buckets.pop()),
        BUCKET_FIRST => {}
        id => drop(buckets.remove(place_of(old, id)?)),
    }
    Ok(buckets)
}

fn place_of(group: &GroupDesc, id: u32) -> Res<usize> {
    group.buckets.iter().position(|b| b.id == id).ok_or(ErrorKind::GmfcUnknownBucket)
}
