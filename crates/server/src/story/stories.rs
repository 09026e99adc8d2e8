//! Keeping stories and finding them again.

use std::sync::{Arc, Mutex, PoisonError};

use throughline_core::{
    Append, Batch, Content, Era, Json, LogId, LogOpening, Name, NewRecord, Node, NodeId, Record,
    Store, StoreError, Tenant, Tree, VaultKey, VaultTurn, Why, kind,
};

use crate::recent::Recent;
use crate::replay::{Parent, TURN};
use crate::story::left::Left;
use crate::story::texts::{Base, Written};
use crate::story::{STORY, Story, Tail, Texts};

/// How many bytes of texts are remembered.
const MOST_BYTES: usize = 16 << 20;
/// How many records are read at once.
const PAGE: u64 = 256;

/// The stories of all calls.
pub(crate) struct Stories {
    store: Arc<dyn Store>,
    tails: Tails,
    left: Left,
}

/// A story as it was found.
pub(crate) struct Found {
    /// The turn that holds its answer.
    pub(crate) turn: Option<VaultTurn>,
    /// When it was kept.
    pub(crate) at: String,
    /// Everything but what was said.
    pub(crate) account: Json,
    /// What was said, or why that is no more, where that is known.
    pub(crate) texts: Result<Texts, Option<Why>>,
}

/// Where the texts of the call before are read.
#[derive(Clone, Copy)]
pub(crate) enum GoesOn<'p> {
    /// In the same log, or in the one that it forks off.
    Here,
    /// In the log of that turn.
    From(&'p Parent),
    /// Nowhere: all texts are kept in full.
    Nowhere,
}

impl Story {
    /// The record of its texts, which belongs to that thread, and what later calls go on from.
    pub(crate) fn said(&self, thread: &LogId, goes_on: GoesOn<'_>) -> (NewRecord, Tail) {
        let base = self.base.as_deref();
        let base = match goes_on {
            GoesOn::Here => base.map(|tail| Base { tail, elsewhere: None }),
            GoesOn::From(parent) => {
                base.map(|tail| Base { tail, elsewhere: Some((&parent.log, parent.last)) })
            }
            GoesOn::Nowhere => None,
        };
        let Written { json, tail } = self.texts.write(base);
        (NewRecord::copy(thread, json.bytes().clone()), tail)
    }

    /// The records that tell it where it has no answer.
    fn records(&self, thread: &LogId, goes_on: GoesOn<'_>) -> Vec<NewRecord> {
        let story = NewRecord::new(STORY, self.account().bytes().clone());
        vec![story, self.said(thread, goes_on).0]
    }
}

impl Stories {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, tails: Tails::new(), left: Left::default() }
    }

    /// The calls whose callers went away.
    pub(crate) fn left(&self) -> &Left {
        &self.left
    }

    /// The texts that a call behind that turn goes on from, if they are there. `era` is the one in which the store was just
    /// looked at, if it was.
    pub(crate) async fn tail(
        &self,
        tenant: &Tenant,
        parent: &Parent,
        era: Option<Era>,
    ) -> Option<Arc<Tail>> {
        if let Some((tail, stood)) = self.tails.get(tenant, &parent.node) {
            if era == Some(stood) {
                return Some(tail);
            }
            // Whoever forgets an Item destroys the texts of its thread: then nothing goes on from them.
            let last = self.store.read(tenant, &parent.log, parent.last.saturating_sub(1), 1).await;
            let stands = last.ok()?.first().is_some_and(|record| record.content.bytes().is_some());
            return stands.then_some(tail);
        }
        // Without them the next are kept in full.
        let tail = self.read_tail(tenant, &parent.log, parent.last).await.ok()?.ok()?;
        Some(Arc::new(tail))
    }

    /// Remembers the texts of a call whose last record that is, and which stood in that era.
    pub(crate) fn remember(&self, story: &Story, tail: Tail, last: u64, era: Era) {
        let parent = story.parent.as_ref().map(|parent| &parent.node);
        let tail = Tail { full: tail.full.or(Some(last)), ..tail };
        self.tails.put(&story.tenant, &story.node, parent, (Arc::new(tail), era));
    }

    /// Keeps the story of a call that has no answer.
    pub(crate) async fn keep(&self, story: &Story) -> Result<(), StoreError> {
        let (tenant, parent) = (&story.tenant, story.parent.as_ref());
        let log = log_of(&story.node);
        let alone = || {
            let opening = Append::to(log.clone()).opening(LogOpening::thread());
            Append { records: story.records(&log, GoesOn::Nowhere), ..opening }
        };
        let append = match parent {
            Some(parent) => {
                let opening = Append::to(log.clone()).opening(LogOpening::run(parent.log.clone()));
                Append { records: story.records(&parent.log, GoesOn::From(parent)), ..opening }
            }
            None => alone(),
        };
        let done = self.store.commit(Batch::of(tenant.clone()).append(append)).await;
        match done {
            // What it went on from was forgotten meanwhile.
            Err(StoreError::NotFound { .. } | StoreError::Invalid(_)) if parent.is_some() => {
                self.store.commit(Batch::of(tenant.clone()).append(alone())).await.map(drop)
            }
            done => done.map(drop),
        }
    }

    /// The story of the call of that name.
    pub(crate) async fn find(
        &self,
        tenant: &Tenant,
        node: &NodeId,
    ) -> Result<Option<Found>, StoreError> {
        let key = VaultKey::Claim(node.0.clone());
        let turn = self.store.find(tenant, &[key]).await?.found.into_iter().next().flatten();
        let turn = turn.map(|found| found.turn);
        let (log, first, last) = match &turn {
            Some(turn) => (turn.log.clone(), turn.first, turn.last),
            None => (log_of(node), 1, 2),
        };
        let limit = u32::try_from(last.saturating_sub(first) + 1).unwrap_or(u32::MAX);
        let records = match self.store.read(tenant, &log, first.saturating_sub(1), limit).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            records => records?,
        };
        let tells = |record: &&Record| matches!(&*record.kind, STORY | TURN);
        let Some(told) = records.iter().find(tells) else { return Ok(None) };
        let Content::Here(account) = &told.content else { return Ok(None) };
        let account = Tree::parse(account.clone()).map_err(|_| damaged(told))?;
        let account = match &*told.kind {
            TURN => account.root().get(STORY),
            _ => Some(account.root()),
        };
        let Some(account) = account.map(Node::json) else { return Ok(None) };
        let texts = self.read_tail(tenant, &log, last).await?.map(|tail| tail.texts);
        Ok(Some(Found { turn, at: told.at.to_string(), account, texts }))
    }

    /// The texts that the record of that number says, or why they are no more.
    async fn read_tail(
        &self,
        tenant: &Tenant,
        log: &LogId,
        last: u64,
    ) -> Result<Result<Tail, Option<Why>>, StoreError> {
        let own = self.store.read(tenant, log, last.saturating_sub(1), 1).await?;
        let Some(own) = own.first().filter(|record| *record.kind == *kind::COPY) else {
            return Ok(Err(None));
        };
        let tree = match &own.content {
            Content::Here(content) => Tree::parse(content.clone()).map_err(|_| damaged(own))?,
            Content::Gone(why) => return Ok(Err(Some(*why))),
        };
        let number = |name: &str| tree.root().get(name).and_then(Node::u64);
        let since = number("since").map_or(0, |since| since + tree.bytes().len() as u64);
        let full = number("full").unwrap_or(last);
        let elsewhere = tree.root().name_of("log").map(LogId).zip(number("last"));
        let texts = match &elsewhere {
            Some((log, last)) => match self.line(tenant, log, full, *last).await? {
                Ok(before) => texts_of(&before, own)?,
                gone => gone,
            },
            None => self.line(tenant, log, full, last).await?,
        };
        Ok(texts.map(|texts| Tail { texts, full: Some(full), since }).map_err(Some))
    }

    /// The texts behind all the records from one that says them in full to that last one. No other calls stand between: a
    /// branch has a log of its own.
    async fn line(
        &self,
        tenant: &Tenant,
        log: &LogId,
        full: u64,
        last: u64,
    ) -> Result<Result<Texts, Why>, StoreError> {
        let mut texts = Texts::default();
        let mut after = full.saturating_sub(1);
        while after < last {
            let limit = u32::try_from(PAGE.min(last - after)).unwrap_or(u32::MAX);
            let records = self.store.read(tenant, log, after, limit).await?;
            let Some(end) = records.last().map(|record| record.seq) else { break };
            after = end;
            for record in records.iter().filter(|record| *record.kind == *kind::COPY) {
                match texts_of(&texts, record)? {
                    Ok(next) => texts = next,
                    gone => return Ok(gone),
                }
            }
        }
        Ok(Ok(texts))
    }
}

/// The texts that a record says behind those of the call before.
fn texts_of(before: &Texts, record: &Record) -> Result<Result<Texts, Why>, StoreError> {
    let content = match &record.content {
        Content::Here(content) => content.clone(),
        Content::Gone(why) => return Ok(Err(*why)),
    };
    let tree = Tree::parse(content).map_err(|_| damaged(record))?;
    Texts::read(before, tree.root()).map(Ok).ok_or_else(|| damaged(record))
}

fn damaged(record: &Record) -> StoreError {
    StoreError::Corrupt(Name::from(format!("record {} does not tell its call", record.seq)))
}

/// The log of a call that has no answer.
fn log_of(node: &NodeId) -> LogId {
    LogId::from(format!("call-{node}"))
}

type Key = (Tenant, NodeId);
/// Texts, and an era in which they stood.
type Stood = (Arc<Tail>, Era);

/// The texts of the last calls.
struct Tails(Mutex<Recent<Key, Stood>>);

impl Tails {
    fn new() -> Self {
        Self(Mutex::new(Recent::new(MOST_BYTES)))
    }

    fn get(&self, tenant: &Tenant, node: &NodeId) -> Option<Stood> {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.get(&(tenant.clone(), node.clone())).cloned()
    }

    /// Remembers a call in place of the one before it: conversations seldom branch.
    fn put(&self, tenant: &Tenant, node: &NodeId, parent: Option<&NodeId>, stood: Stood) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parent) = parent {
            recent.take(&(tenant.clone(), parent.clone()));
        }
        let size = stood.0.texts.size();
        recent.put((tenant.clone(), node.clone()), stood, size);
    }
}
