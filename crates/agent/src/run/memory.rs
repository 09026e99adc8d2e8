//! What a process remembers of Threads, so that the next run on one need not read it anew.
//!
//! Nothing rests on it. A Thread that somebody else wrote to has another last record, and where anything of a tenant's was
//! destroyed there is another [`Era`]: what is remembered of it is let go then, and the store is asked.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Era, LogHead, LogId, Tenant, TokenCounter};

use crate::run::load::OpenThread;

/// The most Threads that are remembered.
const MOST: usize = 256;
/// The most bytes that all of them may have, roughly.
const MOST_BYTES: u64 = 64 << 20;

/// What a process remembers of Threads: the latest ones.
#[derive(Clone, Default)]
pub(crate) struct Memory(Arc<Mutex<Remembered>>);

#[derive(Default)]
struct Remembered {
    /// The one that was put here last stands last.
    threads: VecDeque<Entry>,
    bytes: u64,
}

struct Entry {
    tenant: Tenant,
    thread: OpenThread,
    /// Who counted the tokens of its window.
    counter: Arc<dyn TokenCounter>,
    bytes: u64,
}

impl Memory {
    /// What is remembered of a Thread, if it is still as it was. Nobody else has it then.
    pub(crate) fn take(
        &self,
        tenant: &Tenant,
        head: &LogHead,
        era: Era,
        counter: &Arc<dyn TokenCounter>,
    ) -> Option<OpenThread> {
        let Entry { thread, counter: counted_by, .. } = self.remove(tenant, &head.log)?;
        let is_current = thread.folded.last == head.last && thread.era == era;
        let is_sound = head.gone.is_none() && !thread.folded.stale;
        (is_current && is_sound && Arc::ptr_eq(&counted_by, counter)).then_some(thread)
    }

    /// Remembers a Thread.
    pub(crate) fn put(&self, tenant: Tenant, thread: OpenThread, counter: Arc<dyn TokenCounter>) {
        let bytes = thread.bytes();
        drop(self.remove(&tenant, &thread.log));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.bytes += bytes;
        known.threads.push_back(Entry { tenant, thread, counter, bytes });
        while known.threads.len() > MOST || known.bytes > MOST_BYTES {
            let Some(oldest) = known.threads.pop_front() else { break };
            known.bytes -= oldest.bytes;
        }
    }

    fn remove(&self, tenant: &Tenant, log: &LogId) -> Option<Entry> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |entry: &Entry| entry.thread.log == *log && entry.tenant == *tenant;
        let place = known.threads.iter().rposition(is_it)?;
        let entry = known.threads.remove(place)?;
        known.bytes -= entry.bytes;
        Some(entry)
    }
}
