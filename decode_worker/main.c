#include "decode_worker/decode_role.h"

int main(int argc, char **argv)
{
    return worker_main(&decode_role_ops, argc, argv);
}
