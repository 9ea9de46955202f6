/* ds-rank: the engine with the built-in layers. */
#include "engine/engine.h"

int main(int argc, char **argv)
{
    return ds_main(argc, argv);
}
