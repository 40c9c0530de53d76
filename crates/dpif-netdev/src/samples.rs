//! Packets sampled by the action `psample`, from a core to the event socket.

use datapath::Pmd;

/// Passes the samples of a core to the reader, and samples for it from now on. Without a reader: a load and a branch.
#[inline]
pub(crate) fn report(core: &mut Pmd) {
    let wanted = probes::samples_wanted();
    if wanted.is_some() || core.samples_locally() {
        pass_on(core, wanted);
    }
}

#[cold]
fn pass_on(core: &mut Pmd, wanted: Option<usize>) {
    let (samples, lost) = core.take_samples();
    if !samples.is_empty() || lost > 0 {
        probes::sampled(samples, lost);
    }
    core.sample_locally(wanted);
}
