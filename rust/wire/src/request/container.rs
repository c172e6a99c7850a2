//! Identity fields inside `metadata`, `extra_body`, `nvext` and their like.

use crate::BodyError;
use crate::json::Cursor;

use super::RequestFacts;
use super::cut::{self, Cutter};
use super::fields::{self, Fate, Role, Rule};

/// A longer value is nobody's name; it is left out rather than copied.
const LONGEST_IDENTITY: usize = 4096;

impl RequestFacts {
    /// Reads the value of a field that concerns the router. True: nothing of it is left to keep.
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor<'_>,
        rule: &'static Rule,
    ) -> Result<bool, BodyError> {
        match rule.role {
            Role::Identity => self.read_identity(cursor, rule.path)?,
            Role::Final => self.is_final |= cursor.boolean()? == Some(true),
            Role::DockerIds => self.read_docker_ids(cursor, rule.path)?,
            Role::Container => match cursor.peek()? {
                b'{' => return self.read_container(cursor, rule),
                b'"' if rule.fate == Fate::Cut => self.read_encoded_container(cursor, rule)?,
                _ => cursor.ignore()?,
            },
        }
        Ok(rule.fate == Fate::Cut)
    }

    fn read_identity(
        &mut self,
        cursor: &mut Cursor<'_>,
        path: &'static str,
    ) -> Result<(), BodyError> {
        match cursor.peek()? {
            b'"' => {
                let string = cursor.string()?;
                if string.end - string.start <= LONGEST_IDENTITY {
                    self.identity
                        .push((path, cursor.decode(string).into_owned()));
                }
            }
            b'-' | b'0'..=b'9' => {
                let number = cursor.number()?;
                if let Some(value) = cursor.parse(number) {
                    self.identity.push((path, value.to_string()));
                }
            }
            _ => cursor.ignore()?,
        }
        Ok(())
    }

    fn read_docker_ids(
        &mut self,
        cursor: &mut Cursor<'_>,
        path: &'static str,
    ) -> Result<(), BodyError> {
        let wrong = |at| BodyError::WrongType {
            field: path,
            expected: "an array of strings",
            at,
        };
        match cursor.peek()? {
            b'n' => return cursor.ignore(),
            b'[' => {}
            _ => return Err(wrong(cursor.at())),
        }
        let mut array = cursor.open_array()?;
        while cursor.element(&mut array)? {
            if cursor.peek()? != b'"' {
                return Err(wrong(cursor.at()));
            }
            let string = cursor.string()?;
            self.docker_ids.push(cursor.decode(string).into_owned());
        }
        Ok(())
    }

    fn read_container(
        &mut self,
        cursor: &mut Cursor<'_>,
        rule: &'static Rule,
    ) -> Result<bool, BodyError> {
        let mut cutter = Cutter::default();
        let mut object = cursor.open_object()?;
        while let Some(member) = cursor.member(&mut object)? {
            cutter.begin(member);
            let Some((_, inner)) = fields::find(rule.path, &cursor.decode_bytes(member.key)) else {
                cursor.ignore()?;
                continue;
            };
            if self.read(cursor, inner)? && rule.fate == Fate::Sift {
                cutter.mark(member, cursor.at(), None, false);
            }
        }
        if rule.fate != Fate::Sift {
            return Ok(rule.fate == Fate::Cut);
        }
        if !cutter.cuttable.is_empty() && cutter.cuttable.len() == cutter.members {
            return Ok(true);
        }
        self.spans.nested.extend(cut::spans(cutter.cuttable.iter()));
        Ok(false)
    }

    /// vLLM takes no objects in `vllm_xargs`, so clients put them into a string. A string that is
    /// no JSON says nothing.
    fn read_encoded_container(
        &mut self,
        cursor: &mut Cursor<'_>,
        rule: &'static Rule,
    ) -> Result<(), BodyError> {
        let string = cursor.string()?;
        let document = cursor.decode(string);
        if Cursor::document(document.as_bytes()).is_err() {
            return Ok(());
        }
        let mut inner = Cursor::new(document.as_bytes())?;
        if inner.peek()? == b'{' {
            self.read_container(&mut inner, rule)?;
        }
        Ok(())
    }
}
