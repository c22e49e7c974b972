#include "prefill_worker/prefill_role.h"

int main(int argc, char **argv)
{
    return worker_main(&prefill_role_ops, argc, argv);
}
