//! What only Converse refuses, of whichever model.

use crate::audit::{Edit, Finding, Mend};
use crate::claude::Inspection;
use crate::claude::view::Kind;
use crate::converse::contract::{is_blank, rules};

/// Looks at the request with the wire's own rules.
pub(super) fn inspect(inspection: &mut Inspection<'_, '_, '_>) {
    blank_texts(inspection);
    empty_signatures(inspection);
}

fn blank_texts(inspection: &mut Inspection<'_, '_, '_>) {
    let view = inspection.view;
    for block in view.messages.iter().flat_map(|message| &message.blocks) {
        let Some(text) = block.text.filter(|_| block.kind == Kind::Text) else { continue };
        // A long text is not blank, and most are long.
        if text.raw().len() > 256 || !text.text().is_some_and(|text| is_blank(&text)) {
            continue;
        }
        let error = format!(
            "The text field in the ContentBlock object at {} is blank. Add text to the text field, and try again.",
            block.place()
        );
        let mend = inspection.removed(&[block], "removes the blank text");
        let message =
            if text.is("") { "this text is empty" } else { "this text is nothing but white space" };
        let finding = Finding::at(&rules::BLANK_TEXT, text, message);
        inspection.report(block, finding.answered(error).mended(mend));
    }
}

fn empty_signatures(inspection: &mut Inspection<'_, '_, '_>) {
    let view = inspection.view;
    for block in view.models_blocks().filter(|block| block.kind == Kind::Thinking) {
        let Some(seal) = block.seal.filter(|seal| seal.is("")) else { continue };
        let mend = Mend::new("leaves the empty signature out", [Edit::Remove(seal.range())]);
        let message = "an empty signature is not the same as none";
        let finding = Finding::at(&rules::EMPTY_SIGNATURE, seal, message);
        inspection.report(block, finding.mended(Some(mend)));
    }
}
