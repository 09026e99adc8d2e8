//! The chains of requests that were read before: a conversation that grows is digested only where it is new.
//!
//! What could be seen of a request is remembered with its chain. A later request that shows all of that again, letter by
//! letter, goes on from there. The texts themselves are compared: a fingerprint only says where it is worth to do so.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{Body, Call, Item, Name, Part, Role, Tenant};

use crate::replay::chain::Chain;

/// How many bytes of conversations are remembered.
const MOST_BYTES: usize = 16 << 20;
/// How many bytes at either end of a text its fingerprint has.
const ENDS: usize = 32;

/// The chains of the last requests, the oldest of which are let go.
#[derive(Default)]
pub(super) struct Chains(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    known: HashMap<u64, Arc<Known>>,
    order: VecDeque<u64>,
    bytes: usize,
}

/// A request as it was seen.
struct Known {
    tenant: Tenant,
    end_user: Option<Name>,
    system: Vec<Shown>,
    items: Vec<Shown>,
    chain: Chain,
    /// About how many bytes it holds.
    size: usize,
}

/// What a chain sees of an Item.
struct Shown {
    role: Role,
    /// What it says; nothing where nothing of that can be seen.
    body: Option<Body>,
}

impl Chains {
    /// The visible conversation of a Call: as [`Chain::of`] would tell it, and sooner.
    pub(super) fn of(&self, call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Chain {
        let marks = fingerprints(call, tenant, end_user);
        let before = self.before(call, tenant, end_user, &marks);
        let chain = match &before {
            Some((_, known)) => known.chain.going_on(&call.items, known.items.len()),
            None => Chain::of(call, tenant, end_user),
        };
        if let Some(mark) = marks.last().filter(|_| chain.is_settled())
            && let Some(known) = Known::of(call, tenant, end_user, &chain)
        {
            self.put(*mark, known, before.map(|(mark, _)| mark));
        }
        chain
    }

    /// The longest beginning of the Call that was seen before.
    fn before(
        &self,
        call: &Call,
        tenant: &Tenant,
        end_user: Option<&str>,
        marks: &[u64],
    ) -> Option<(u64, Arc<Known>)> {
        let found = {
            let remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = |mark: &u64| Some((*mark, Arc::clone(remembered.known.get(mark)?)));
            marks.iter().rev().find_map(known)
        };
        found.filter(|(_, known)| known.begins(call, tenant, end_user))
    }

    /// Remembers a request in place of the one that it goes on from: conversations seldom branch.
    fn put(&self, mark: u64, known: Known, before: Option<u64>) {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = before {
            remembered.let_go(before);
        }
        remembered.let_go(mark);
        remembered.bytes += known.size;
        remembered.known.insert(mark, Arc::new(known));
        remembered.order.push_back(mark);
        while remembered.bytes > MOST_BYTES
            && let Some(oldest) = remembered.order.pop_front()
        {
            remembered.let_go(oldest);
        }
        // What was let go before its turn is not kept in order for ever.
        if remembered.order.len() > 2 * remembered.known.len() + 16 {
            let Remembered { known, order, .. } = &mut *remembered;
            order.retain(|mark| known.contains_key(mark));
        }
    }
}

impl Remembered {
    fn let_go(&mut self, mark: u64) {
        if let Some(known) = self.known.remove(&mark) {
            self.bytes = self.bytes.saturating_sub(known.size);
        }
    }
}

impl Known {
    /// The Call as it was seen; nothing where more can be seen of it than is compared here.
    fn of(call: &Call, tenant: &Tenant, end_user: Option<&str>, chain: &Chain) -> Option<Self> {
        let shown = |items: &[Item]| items.iter().map(Shown::of).collect::<Option<Vec<_>>>();
        let (system, items) = (shown(&call.system)?, shown(&call.items)?);
        // Arguments and values share the memory of the request that they came in.
        let source = call.source.as_ref().map_or(0, |source| source.request.body.len());
        let texts = call.system.iter().chain(&call.items).map(|item| text(item).len());
        let size = source + texts.sum::<usize>() + items.len() * size_of::<Shown>();
        let (tenant, end_user) = (tenant.clone(), end_user.map(Name::from));
        Some(Self { tenant, end_user, system, items, chain: chain.clone(), size })
    }

    /// Whether a Call begins with all of this.
    fn begins(&self, call: &Call, tenant: &Tenant, end_user: Option<&str>) -> bool {
        let is_same = |known: &[Shown], items: &[Item]| {
            known.len() == items.len() && known.iter().zip(items).all(|(known, now)| known.is(now))
        };
        self.tenant == *tenant
            && self.end_user.as_deref() == end_user
            && is_same(&self.system, &call.system)
            && is_same(&self.items, call.items.get(..self.items.len()).unwrap_or_default())
    }
}

impl Shown {
    fn of(item: &Item) -> Option<Self> {
        let body = match &item.body {
            Body::Thought(_) | Body::Hosted(_) => None,
            Body::Text(_)
            | Body::Summary { .. }
            | Body::Media(_)
            | Body::Call(_)
            | Body::Result(_) => Some(item.body.clone()),
            // Seals and the wire's own words tell these apart. They are seldom.
            Body::Compaction | Body::Unknown => return None,
        };
        Some(Self { role: item.role, body })
    }

    /// Whether that Item shows the same.
    fn is(&self, item: &Item) -> bool {
        let says_the_same = match (&self.body, &item.body) {
            (None, body) => matches!(body, Body::Thought(_) | Body::Hosted(_)),
            (Some(known), body) => known == body,
        };
        self.role == item.role && says_the_same
    }
}

/// What most likely tells each beginning of a Call from others: one for each Item.
fn fingerprints(call: &Call, tenant: &Tenant, end_user: Option<&str>) -> Vec<u64> {
    let mut hasher = DefaultHasher::new();
    (&tenant.0, end_user, call.system.len()).hash(&mut hasher);
    let marks = call.system.iter().chain(&call.items).map(|item| {
        let text = text(item).as_bytes();
        let (head, tail) = (text.get(..ENDS), text.len().checked_sub(ENDS));
        hasher.write_usize(text.len());
        hasher.write(head.unwrap_or(text));
        hasher.write(tail.and_then(|tail| text.get(tail..)).unwrap_or_default());
        hasher.finish()
    });
    marks.collect::<Vec<_>>().split_off(call.system.len())
}

/// A text that an Item most likely shares with no other.
fn text(item: &Item) -> &str {
    match &item.body {
        Body::Text(text) | Body::Summary { text, .. } => text,
        Body::Call(call) => &call.id.0,
        Body::Result(result) => match result.parts.first() {
            Some(Part::Text(text)) => text,
            Some(Part::Value(_) | Part::Media(_) | Part::Unknown(..)) | None => &result.call.0,
        },
        Body::Media(_) | Body::Thought(_) | Body::Hosted(_) | Body::Compaction | Body::Unknown => {
            ""
        }
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod chains_tests;
