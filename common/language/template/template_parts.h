/* What template_compile makes and the run reads. Inside common/language/template only. */
#ifndef BATON_LANGUAGE_TEMPLATE_TEMPLATE_PARTS_H
#define BATON_LANGUAGE_TEMPLATE_TEMPLATE_PARTS_H

#include "common/language/template/ast.h"
#include "common/language/template/names.h"
#include "common/language/template/template.h"

struct template
{
    struct arena arena;
    struct names names;
    struct node *body;
    const struct node *last_test; /* and by test.earlier all others; NULL: none */
    /* Names that the run itself gives values, interned. */
    const char *loop, *caller, *varargs, *kwargs;
};

#endif
