//! What the records of a log say about it: its row must say the same, and what is destroyed was said to be.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use throughline_core::{LogHead, LogId, Node, Rewind, Tenant, Tree, kind};

use crate::backend::{Erased, Listing, Order, Row, Span};
use crate::chain::nature;
use crate::journal::Journal;
use crate::verify::{Fault, Ledger, broken};

/// What the records of a log say about it.
pub(super) struct Summary {
    /// What the row says that the log is, which each record proves.
    pub(super) nature: String,
    /// The last record that was added.
    last: u64,
    events: u64,
    bytes: u64,
    /// The records that rewound, and to where; that is not known where the content is no more.
    rewinds: Vec<(u64, Option<u64>)>,
    /// Contents that are no more, and must be said to be.
    missing: Vec<Missing>,
    said: Said,
}

/// A record whose content is no more.
struct Missing {
    seq: u64,
    why: Erased,
    is_checkpoint: bool,
}

/// What was said to be destroyed: some records of the log, all before that one, or all checkpoints before it.
#[derive(Default)]
struct Said {
    /// Everything before that record, and why.
    all_before: HashMap<Erased, u64>,
    checkpoints_before: HashMap<Erased, u64>,
    seqs: HashSet<(u64, Erased)>,
    /// The last record that says something was destroyed.
    last: u64,
}

impl Summary {
    /// Of the log with that row, before its first own record.
    pub(super) fn before(head: &LogHead) -> Self {
        Self {
            nature: nature(head.kind, head.of.as_ref(), head.fork.as_ref()),
            last: head.fork.as_ref().map_or(0, |fork| fork.at),
            events: 0,
            bytes: 0,
            rewinds: Vec::new(),
            missing: Vec::new(),
            said: Said::default(),
        }
    }

    /// The next record. What its content says is heard or lost after that.
    pub(super) fn add(&mut self, row: &Row) -> Result<(), String> {
        if row.seq != self.last + 1 {
            return Err(format!("stands where record {} should be", self.last + 1));
        }
        self.last = row.seq;
        self.events = row.last_event.unwrap_or(self.events);
        self.bytes += row.size;
        Ok(())
    }

    /// The content of the record is no more.
    pub(super) fn lose(&mut self, row: &Row, why: Erased) {
        self.bytes = self.bytes.saturating_sub(row.size);
        let is_checkpoint = *row.kind == *kind::CHECKPOINT;
        self.missing.push(Missing { seq: row.seq, why, is_checkpoint });
        if *row.kind == *kind::REWIND {
            self.rewinds.push((row.seq, None));
        }
    }

    /// What the content of the record says about the log.
    pub(super) fn hear(&mut self, row: &Row, content: &Bytes) {
        let why = match &*row.kind {
            kind::REWIND => {
                let entry = Tree::parse(content.clone()).ok();
                let to = entry.and_then(|entry| entry.root().present("to").and_then(Node::u64));
                self.rewinds.push((row.seq, to));
                return;
            }
            kind::FORGOTTEN => Erased::Forgotten,
            kind::EXPIRED => Erased::Expired,
            _ => return,
        };
        self.said.hear(row.seq, why, content);
    }

    /// A record whose content is no more, though nothing says that it was destroyed so.
    fn unsaid(&self, said: &Said) -> Option<u64> {
        self.missing.iter().find(|missing| !said.tells_of(missing)).map(|missing| missing.seq)
    }

    /// In what the log's row differs from what its records say.
    fn differs(&self, head: &LogHead, parent: Option<&LogHead>) -> Option<String> {
        for (what, found, said) in [
            ("ends at", self.last, head.last),
            ("has as last event", self.events, head.events),
            ("has in bytes", self.bytes, head.bytes),
        ] {
            if found != said {
                return Some(format!("{what} {found}, and its row says {said}"));
            }
        }
        let before = head.fork.as_ref().map_or(0, |fork| fork.at);
        let (shared, own): (Vec<Rewind>, Vec<Rewind>) =
            head.rewinds.iter().partition(|rewind| rewind.at <= before);
        let inherited = parent.map(|parent| parent.rewinds.as_slice()).unwrap_or_default();
        let inherited = inherited.iter().filter(|rewind| rewind.at <= before);
        let is_same = |(rewind, (at, to)): (&Rewind, &(u64, Option<u64>))| {
            rewind.at == *at && to.is_none_or(|to| rewind.to == to)
        };
        if !shared.iter().eq(inherited)
            || own.len() != self.rewinds.len()
            || !own.iter().zip(&self.rewinds).all(is_same)
        {
            return Some("was rewound otherwise than its row says".to_owned());
        }
        // Whoever destroyed last is who the row tells of.
        let gone = self.said.all_before.iter().max_by_key(|(_, before)| **before);
        if head.gone != gone.map(|(why, _)| why.why()) {
            return Some("is not gone as its row says".to_owned());
        }
        None
    }
}

impl Said {
    fn hear(&mut self, at: u64, why: Erased, content: &Bytes) {
        self.last = at;
        let Ok(entry) = Tree::parse(content.clone()) else { return };
        if entry.root().present("all").and_then(Node::bool) == Some(true) {
            self.all_before.insert(why, at);
        }
        if entry.root().present("checkpoints").and_then(Node::bool) == Some(true) {
            self.checkpoints_before.insert(why, at);
        }
        if let Some(seqs) = entry.root().present("seqs") {
            self.seqs.extend(seqs.elements().filter_map(Node::u64).map(|seq| (seq, why)));
        }
    }

    fn tells_of(&self, Missing { seq, why, is_checkpoint }: &Missing) -> bool {
        let before =
            |places: &HashMap<Erased, u64>| places.get(why).is_some_and(|place| seq < place);
        before(&self.all_before)
            || (*is_checkpoint && before(&self.checkpoints_before))
            || self.seqs.contains(&(*seq, *why))
    }
}

/// How often a log is looked at from which somebody destroys meanwhile.
const LOOKS: u32 = 8;

impl Journal {
    /// Everything that is missing was said to be destroyed.
    pub(super) async fn prove_missing(&self, ledger: &Ledger) -> Result<(), Fault> {
        let mut unsaid: Vec<_> =
            ledger.logs.iter().filter(|(_, log)| log.unsaid(&log.said).is_some()).collect();
        unsaid.sort_by_key(|(key, _)| *key);
        for ((tenant, log), summary) in unsaid {
            // It may have been destroyed after the proof began, and so be told of behind what was proven.
            let said = match self.backend.log(tenant, log).await? {
                Some(head) => self.summary_now(tenant, &head).await?.said,
                None => Said::default(),
            };
            if let Some(seq) = summary.unsaid(&said) {
                let place = format!("record {seq} of {log} (tenant {tenant})");
                let problem = "has no content, and nothing says that it was destroyed so";
                return Err(broken(&place, problem).into());
            }
        }
        Ok(())
    }

    /// Every log's row says what the log's records say.
    pub(super) async fn prove_logs(&self, ledger: &Ledger) -> Result<(), Fault> {
        let mut seen = 0;
        let mut tenants = self.backend.tenants().await?;
        tenants.retain(|tenant| ledger.concerns(tenant));
        for tenant in tenants {
            let everything = Listing {
                kind: None,
                of: None,
                forks_of: None,
                order: Order::Oldest,
                after: None,
                limit: u32::MAX >> 1,
            };
            for head in self.backend.logs(&tenant, everything).await? {
                let key = (tenant.clone(), head.log.clone());
                let proven = ledger.logs.get(&key);
                seen += usize::from(proven.is_some());
                self.prove_log(&tenant, head, proven).await?;
            }
        }
        if seen != ledger.logs.len() {
            return Err(broken("some log", "has records and no row").into());
        }
        // What the database says of itself is for its operator.
        if ledger.scope.is_some() {
            return Ok(());
        }
        let problems = self.backend.check().await?;
        match problems.first() {
            None => Ok(()),
            Some(problem) => Err(broken("the database:", problem).into()),
        }
    }

    /// The log's row says what its records say. A log without records of its own proves nothing yet.
    async fn prove_log(
        &self,
        tenant: &Tenant,
        mut head: LogHead,
        proven: Option<&Summary>,
    ) -> Result<(), Fault> {
        let parent = match &head.fork {
            None => None,
            Some(fork) => self.backend.log(tenant, &fork.log).await?,
        };
        let nothing = Summary::before(&head);
        let proven = proven.unwrap_or(&nothing);
        if head.last <= proven.last {
            let problem = proven.differs(&head, parent.as_ref());
            return problem.map_or(Ok(()), |problem| Err(differs(tenant, &head.log, &problem)));
        }
        // It goes on: others wrote to it meanwhile, or destroyed what was proven.
        let mut summary = self.summary_now(tenant, &head).await?;
        for _ in 0..LOOKS {
            let Some(problem) = summary.differs(&head, parent.as_ref()) else { return Ok(()) };
            let Some(now) = self.backend.log(tenant, &head.log).await? else {
                return Err(differs(tenant, &head.log, &problem));
            };
            // Only what was destroyed between the two looks excuses it, which is told behind where the row ended.
            let anew = self.summary_now(tenant, &now).await?;
            if anew.said.last <= head.last {
                return Err(differs(tenant, &head.log, &problem));
            }
            (head, summary) = (now, anew);
        }
        // Somebody destroys without a pause: the next proof tells.
        Ok(())
    }

    /// What the log's own records say, as far as there are any up to where its row says that it ends.
    async fn summary_now(&self, tenant: &Tenant, head: &LogHead) -> Result<Summary, Fault> {
        const PAGE: u32 = 500;
        let mut summary = Summary::before(head);
        loop {
            let span = Span { after: summary.last, up_to: head.last, limit: PAGE };
            let rows = self.backend.rows(tenant, &head.log, span).await?;
            if rows.is_empty() {
                return Ok(summary);
            }
            for row in &rows {
                let added = summary.add(row);
                added.map_err(|problem| {
                    broken(
                        &format!("record {} of {} (tenant {tenant})", row.seq, head.log),
                        &problem,
                    )
                })?;
                let tells = [kind::REWIND, kind::FORGOTTEN, kind::EXPIRED].contains(&&*row.kind);
                match row.erased {
                    Some(why) => summary.lose(row, why),
                    None if !tells => {}
                    None => match self.content_or_gone(tenant, &head.log, row).await? {
                        Ok((content, _)) => summary.hear(row, &content),
                        Err(why) => summary.lose(row, why),
                    },
                }
            }
        }
    }
}

fn differs(tenant: &Tenant, log: &LogId, problem: &str) -> Fault {
    broken(&format!("{log} (tenant {tenant})"), problem).into()
}
