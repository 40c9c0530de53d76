//! The thread `bonds`: follows the links of all bonds, enables and disables members, and rebalances.
//!
//! It reads link events of the kernel, and carriers of bonds that forward packets ([`carriers`]), by itself, so a lost carrier
//! changes forwarding without the main loop: the state of the bond, then the flows that looked at it. Links of dummies and
//! settings come from the main loop, states of link protocols from the sessions of the members ([`ofproto::links`]), whose thread
//! wakes this one. Commands change a bond on the main loop, by the same steps ([`Running::apply`]).
//!
//! The thread starts with the first bond. It holds the list of bonds during a round, so an ended bond is out of use once it is
//! out of the list.

mod announce;
mod carriers;
mod thread;

use crate::devices::Device;
use crate::instances::Instance;
use crate::slowpath::translating_thread;
use dpif::Provider;
use flow::{DpPort, MacAddr, OfPort};
use l2proto::Protocol;
use mio::{Poll, Token, Waker};
use ofproto::backer::Backer;
use ofproto::bond::{Bond, BondMode, LacpStatus, MemberLink, Outcome, State};
use ofproto::links::{self, PortLink};
use ofproto::ports::{BridgeId, Bundle, BundleId, PortTable};
use ofproto::revalidate::{Few, change_at_once};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use sync::{AtomicBool, Mutex, Ordering, Unparker, lock};
use sys::confine::Kind;
use vswitch::plan::PortSet;

/// Name of the thread.
const THREAD: &str = "bonds";
/// Token of requests to the thread.
const WAKE: Token = Token(0);
/// Token of its link events.
const LINKS: Token = Token(1);
/// Token of the timer for reads of carriers.
const CARRIERS: Token = Token(2);

/// An interface of a bond.
struct Member {
    name: String,
    port: OfPort,
    /// Its number in the datapath; a patch port has none.
    dp_port: Option<DpPort>,
    /// Its device has a carrier, as last known.
    carrier: AtomicBool,
    /// Its sessions of link protocols.
    links: Vec<PortLink>,
}

impl Member {
    /// Whether carrier and link protocols let it send.
    fn may_enable(&self) -> bool {
        self.carrier.load(Ordering::Acquire) && links::state(&self.links).is_live
    }
}

/// A bond of a bridge.
pub(crate) struct Running {
    bond: Arc<Bond>,
    members: Vec<Member>,
    backer: Arc<Backer>,
    datapath: Arc<dyn Provider>,
    revalidator: Unparker,
    bridge: BridgeId,
    bundle: BundleId,
    /// Bytes that the datapath sent for each hash value, as last read.
    sent: Mutex<Vec<u64>>,
    shared: Arc<Shared>,
}

impl Running {
    /// State of the negotiation: the sessions of LACP of the members have it.
    fn lacp_status(&self) -> LacpStatus {
        let links = self.members.iter().flat_map(|member| &member.links);
        let lacp = links.filter(|link| link.claim.protocol() == Protocol::Lacp);
        let negotiated = lacp.map(|link| link.session.state().is_negotiated).reduce(|a, b| a || b);
        match negotiated {
            None => LacpStatus::Off,
            Some(false) => LacpStatus::Configured,
            Some(true) => LacpStatus::Negotiated,
        }
    }

    /// Changes the bond, follows its links, and carries out what that changes; returns the result of the change.
    fn update<R>(&self, change: impl FnOnce(&mut State, u64) -> R) -> R {
        let now_ms = sys::clock::monotonic_ms();
        let mut result = None;
        let outcome = self.bond.update(now_ms, |state| {
            for member in &self.members {
                state.set_link(&member.name, member.carrier.load(Ordering::Acquire), member.may_enable());
            }
            state.set_lacp(self.lacp_status(), now_ms);
            result = Some(change(state, now_ms));
        });
        self.apply(outcome, now_ms);
        let Some(result) = result else { unreachable!("the change runs within the update") };
        result
    }

    /// Changes forwarding after a change of the bond.
    fn apply(&self, outcome: Outcome, now_ms: u64) {
        let Outcome { changed, announce, lines } = outcome;
        if changed {
            self.follow_members();
            self.backer.bond_changed(self.bridge, self.bundle);
            if !change_at_once(&self.backer, &*self.datapath, Few::FOR_BONDS, now_ms) {
                self.revalidator.unpark();
            }
            self.shared.changed.store(true, Ordering::Release);
            (self.shared.wake_main)();
        }
        lines.iter().for_each(|line| log::info!(target: "bond", "{line}"));
        if announce {
            lock(&self.shared.to_announce).push((self.bridge, self.bundle));
            self.shared.wake();
        }
    }
}

impl Running {
    /// Gives the datapath the members of all hash values, if it balances the bond.
    fn follow_members(&self) {
        let (Some(balancer), Some(id)) = (self.datapath.bond_balancer(), self.bond.recirc_id()) else {
            return;
        };
        let mut state = self.bond.state();
        let hashed = if state.uses_lb_output() { state.all_hashed() } else { None };
        let of_port = |port: &OfPort| {
            let member = self.members.iter().find(|m| m.port == *port);
            member.and_then(|m| m.dp_port).unwrap_or(DpPort::NONE)
        };
        let ports: Vec<DpPort> = hashed.unwrap_or_default().iter().map(of_port).collect();
        drop(state);
        balancer.set_bond(id.0, &ports);
    }

    /// Counts the bytes that the datapath sent for each hash value since the last call.
    fn account(&self) {
        let (Some(balancer), Some(id)) = (self.datapath.bond_balancer(), self.bond.recirc_id()) else {
            return;
        };
        let Some(now) = balancer.bond_bytes(id.0) else { return };
        let before = std::mem::replace(&mut *lock(&self.sent), now.clone());
        let mut state = self.bond.state();
        for (hash, bytes) in (0..=u8::MAX).zip(now) {
            let before = before.get(usize::from(hash)).copied().unwrap_or(0);
            state.account(hash, 0, bytes.saturating_sub(before));
        }
    }

    /// Ends the bond.
    fn end(&self) {
        if let (Some(balancer), Some(id)) = (self.datapath.bond_balancer(), self.bond.recirc_id()) {
            balancer.set_bond(id.0, &[]);
        }
        number(&self.bond, BondMode::ActiveBackup, &self.backer, (self.bridge, self.bundle));
    }
}

/// State shared by the main loop and the thread.
struct Shared {
    running: Mutex<Vec<Arc<Running>>>,
    /// Bonds whose neighbours have to learn addresses again.
    to_announce: Mutex<Vec<(BridgeId, BundleId)>>,
    /// A bond changed, for the database.
    changed: AtomicBool,
    /// There are new members, whose links may have changed meanwhile.
    has_new: AtomicBool,
    stop: AtomicBool,
    waker: Mutex<Option<Arc<Waker>>>,
    wake_main: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    fn wake(&self) {
        if let Some(waker) = &*lock(&self.waker) {
            // The thread polls its waker as long as it runs.
            let _ = waker.wake();
        }
    }
}

/// The main loop's side.
pub(crate) struct Bonds {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    bonds: BTreeMap<(BridgeId, BundleId), Arc<Running>>,
}

impl Bonds {
    /// Without bonds. `wake` is called when [`Bonds::take_changed`] has something.
    pub(crate) fn new(wake: impl Fn() + Send + Sync + 'static) -> Bonds {
        let shared = Arc::new(Shared {
            running: Mutex::default(),
            to_announce: Mutex::default(),
            changed: AtomicBool::new(false),
            has_new: AtomicBool::new(true),
            stop: AtomicBool::new(false),
            waker: Mutex::default(),
            wake_main: Box::new(wake),
        });
        Bonds { shared, thread: None, bonds: BTreeMap::new() }
    }

    /// Wakes the thread from any other: the state of a session or the clock changed.
    pub(crate) fn waker(&self) -> impl Fn() + Send + Sync + 'static {
        let shared = self.shared.clone();
        move || shared.wake()
    }

    /// Gives the ports of a bridge their bonds, before the table is published: new, changed and ended ones.
    pub(crate) fn attach(
        &mut self,
        bridge: BridgeId,
        instance: &Instance,
        wanted: &PortSet,
        table: &mut PortTable,
        devices: &BTreeMap<String, Device>,
    ) {
        let gone = self.bonds.keys().filter(|(b, bundle)| *b == bridge && !wanted.bonds.contains_key(bundle));
        let gone: Vec<_> = gone.copied().collect();
        if gone.is_empty() && wanted.bonds.is_empty() {
            return;
        }
        let mut ended: Vec<Arc<Running>> = gone.iter().filter_map(|key| self.bonds.remove(key)).collect();
        let now_ms = sys::clock::monotonic_ms();
        for (id, settings) in &wanted.bonds {
            let Some(bundle) = table.bundles.get_mut(id) else { continue };
            let known = self.bonds.get(&(bridge, *id)).filter(|known| known.bond.name() == bundle.name);
            let bond = known.map(|known| known.bond.clone());
            let bond = bond.unwrap_or_else(|| Arc::new(Bond::new(&bundle.name, settings.clone(), now_ms)));
            if let Some(known) = known.filter(|_| settings.mode == BondMode::ActiveBackup) {
                known.end();
            }
            number(&bond, settings.mode, &instance.backer, (bridge, *id));
            let known = known.map(|known| &known.members[..]).unwrap_or_default();
            let (members, member_links) = members(bundle, &table.ports, known, devices);
            Arc::make_mut(bundle).bond = Some(bond.clone());
            let outcome = bond.update(now_ms, |state| {
                state.configure(settings.clone(), now_ms);
                state.set_members(&member_links);
            });
            let running = Arc::new(Running {
                bond,
                members,
                backer: instance.backer.clone(),
                datapath: instance.datapath.clone(),
                revalidator: instance.revalidator_unparker(),
                bridge,
                bundle: *id,
                sent: Mutex::default(),
                shared: self.shared.clone(),
            });
            running.follow_members();
            // The table with the bond is published after this; flows follow that.
            running.apply(Outcome { changed: false, ..outcome }, now_ms);
            self.bonds.insert((bridge, *id), running);
        }
        *lock(&self.shared.running) = self.bonds.values().cloned().collect();
        self.shared.changed.store(true, Ordering::Release);
        self.shared.has_new.store(true, Ordering::Release);
        for running in ended.drain(..) {
            running.end();
        }
        self.start();
        self.shared.wake();
    }

    fn start(&mut self) {
        if self.thread.is_some() || self.bonds.is_empty() {
            return;
        }
        let start = || -> std::io::Result<JoinHandle<()>> {
            let poll = Poll::new()?;
            *lock(&self.shared.waker) = Some(Arc::new(Waker::new(poll.registry(), WAKE)?));
            let runner = thread::Runner::new(self.shared.clone(), poll)?;
            translating_thread(THREAD.to_string()).spawn(move || {
                sys::confine::enter(Kind::Links, &[]);
                runner.run();
            })
        };
        match start() {
            Ok(thread) => self.thread = Some(thread),
            Err(e) => {
                log::error!(target: "bond", "cannot start the thread {THREAD}, so no bond follows its links: {e}");
            }
        }
    }

    /// The main loop read the state of a device that the kernel does not know.
    pub(crate) fn set_carrier(&self, bridge: BridgeId, name: &str, carrier: bool) {
        for running in self.bonds.range((bridge, BundleId(0))..=(bridge, BundleId(u32::MAX))).map(|(_, r)| r)
        {
            if let Some(member) = running.members.iter().find(|m| m.name == name)
                && member.carrier.swap(carrier, Ordering::AcqRel) != carrier
            {
                running.update(|_, _| ());
            }
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.bonds.is_empty()
    }

    /// All bonds, by bridge.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Bond>> {
        self.bonds.values().map(|running| &running.bond)
    }

    /// The bond of that name.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Bond>> {
        self.all().find(|bond| bond.name() == name)
    }

    /// Changes a bond by a command.
    ///
    /// # Errors
    /// There is no such bond, or the change fails.
    pub(crate) fn change(
        &self,
        name: &str,
        change: impl FnOnce(&mut State) -> Result<&'static str, &'static str>,
    ) -> Result<&'static str, &'static str> {
        let running = self.bonds.values().find(|running| running.bond.name() == name);
        running.ok_or("no such bond")?.update(|state, _| change(state))
    }

    /// Addresses of the active members by port, if any bond changed since the last call.
    pub(crate) fn take_changed(&self) -> Option<BTreeMap<String, MacAddr>> {
        let changed = self.shared.changed.swap(false, Ordering::AcqRel);
        changed.then(|| self.all().map(|b| (b.name().to_string(), b.state().active_mac())).collect())
    }
}

/// Gives a bond its recirculation id, or takes it away, as its mode needs one or not.
fn number(bond: &Bond, mode: BondMode, backer: &Backer, (bridge, bundle): (BridgeId, BundleId)) {
    match (bond.recirc_id(), mode) {
        (None, BondMode::BalanceSlb | BondMode::BalanceTcp) => {
            bond.set_recirc_id(backer.hold_bond(bridge, bundle));
        }
        (Some(id), BondMode::ActiveBackup) => {
            bond.set_recirc_id(None);
            backer.recirc_release(&[id]);
        }
        _ => {}
    }
}

/// The members of a bundle. Devices tell the carriers of new ones.
fn members(
    bundle: &Bundle,
    ports: &BTreeMap<OfPort, Arc<ofproto::ports::Port>>,
    known: &[Member],
    devices: &BTreeMap<String, Device>,
) -> (Vec<Member>, Vec<MemberLink>) {
    let ports = bundle.members.iter().filter_map(|port| ports.get(port));
    let of_port = |port: &Arc<ofproto::ports::Port>| {
        let known = known.iter().find(|m| m.name == port.name).map(|m| m.carrier.load(Ordering::Acquire));
        let carrier = known.unwrap_or_else(|| {
            // A patch port has no device and is up.
            devices.get(&port.name).is_none_or(|device| device.link().is_ok_and(|link| link.carrier()))
        });
        let (name, links) = (port.name.clone(), port.links.clone());
        let (of_port, dp_port) = (port.of_port, port.dp_port);
        let carrier_now = AtomicBool::new(carrier);
        let member = Member { name: name.clone(), port: of_port, dp_port, carrier: carrier_now, links };
        let may_enable = member.may_enable();
        (member, MemberLink { name, port: port.of_port, mac: port.mac, carrier, may_enable })
    };
    ports.map(of_port).unzip()
}

impl Drop for Bonds {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported already.
            let _ended = thread.join();
        }
        lock(&self.shared.running).clear();
    }
}
