/* The tokens of a template to its nodes. What is Jinja, but not in the part that this does, is
 * refused by name. */
#ifndef BATON_LANGUAGE_TEMPLATE_PARSER_H
#define BATON_LANGUAGE_TEMPLATE_PARSER_H

#include "common/language/template/lexer.h"
#include "common/language/template/template_parts.h"

/* Nodes and names go into `template`. */
enum status parser_run(struct token *tokens, struct template *template,
                       struct error *err) WARN_UNUSED;

#endif
