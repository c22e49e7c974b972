/* The tokens of a template to its nodes. What is Jinja, but not in the part that this does, is refused by name. */
#ifndef BATON_TEMPLATE_PARSER_H
#define BATON_TEMPLATE_PARSER_H

#include "common/template/lexer.h"
#include "common/template/template_parts.h"

/* Nodes and names go into `template`. */
enum status parser_run(struct token *tokens, struct template *template,
                       struct error *err) WARN_UNUSED;

#endif
