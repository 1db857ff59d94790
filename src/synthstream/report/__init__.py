"""Pages made of what is public: releases, claims and configuration. Nothing here sees a private row."""
